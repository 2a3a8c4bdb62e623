"""A prompt template, and the typed answer that it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from butlers.domain.errors import OutputParseError, PromptValidationError
from butlers.prompt.params import generic_arguments
from butlers.prompt.section import OPEN_SECTIONS, Section, Style
from butlers.prompt.skill import Skill

FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


def output_instruction(kind: type) -> str:
    schema = json.dumps(TypeAdapter(kind).json_schema(), ensure_ascii=False, sort_keys=True)
    return (
        "Answer with nothing but one fenced JSON code block whose object fits this schema:\n\n"
        f"```json\n{schema}\n```"
    )


def parse_output(kind: type, text: str) -> Any:
    """Parse the last fenced JSON object of the answer, or the text between its braces.

    Raises OutputParseError.
    """
    reason = "it contains no JSON object"
    bare = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (*reversed(FENCED.findall(text)), text.strip(), bare):
        try:
            return TypeAdapter(kind).validate_json(candidate)
        except ValidationError as error:
            reason = str(error.errors(include_url=False)[0]["msg"])
    failed = OutputParseError(
        f"the answer is not a {kind.__name__}: {reason}",
        hint="evaluate the prompt again",
    )
    failed.text = text
    raise failed


OutputT = TypeVar("OutputT")
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,127}")


class PromptTemplate(Generic[OutputT]):
    """``PromptTemplate[Review](…)`` asks for an answer of that dataclass, ``[None]`` for text."""

    def __init__(
        self,
        *,
        ns: str,
        key: str,
        name: str | None = None,
        sections: Sequence[Section[Any]] = (),
        style: Style | None = None,
    ) -> None:
        for what in (ns, key):
            if not IDENTIFIER.fullmatch(what):
                raise PromptValidationError(
                    f"{what[:80]!r} is not a valid ns or key of a prompt",
                    hint="use letters and digits, with . _ - / between them",
                )
        self.ns, self.key, self.name = ns, key, name or f"{ns}:{key}"
        self.sections = tuple(sections)
        self.style = style or Style()
        self._check_keys(self.sections, "")
        self._check_tools()
        self._check_skills()

    @cached_property
    def output_type(self) -> type | None:
        written = generic_arguments(self)
        kind = written[0] if written else None
        if kind is None or kind is type(None) or isinstance(kind, TypeVar):
            return None
        if not (isinstance(kind, type) and is_dataclass(kind)):
            raise PromptValidationError(
                f"{self.name}: the output type must be None or a dataclass, not {kind!r}",
                hint="PromptTemplate[None](…) or PromptTemplate[MyAnswer](…)",
            )
        return kind

    def all_sections(self) -> Iterator[Section[Any]]:
        waiting = list(self.sections)
        while waiting:
            section = waiting.pop(0)
            yield section
            waiting[:0] = section.declared_children()

    @cached_property
    def claimed_types(self) -> frozenset[type]:
        """Params types that sections name."""
        found = (section.params_type for section in self.all_sections())
        return frozenset(kind for kind in found if kind is not None)

    def _check_keys(self, sections: Sequence[Section[Any]], path: str) -> None:
        seen = set()
        for section in sections:
            inner = f"{path}{section.key}"
            if section.key in seen:
                raise PromptValidationError(f"{self.name} has two sections {inner}")
            seen.add(section.key)
            self._check_keys(section.declared_children(), f"{inner}.")

    def _check_tools(self) -> None:
        owners = {OPEN_SECTIONS: "the prompt itself"}
        for section in self.all_sections():
            for tool in section.tools:
                if tool.name in owners:
                    raise PromptValidationError(
                        f"{self.name}: the tool {tool.name} belongs to {owners[tool.name]} "
                        f"and to {section.key}",
                        hint="rename one of them",
                    )
                owners[tool.name] = section.key
                _ = tool.schema  # raises now, not during a session

    def _check_skills(self) -> None:
        """Reject duplicate skill names: each skill is a folder in the same home."""
        names = [one.name for one in self.all_sections() if isinstance(one, Skill)]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise PromptValidationError(
                f"{self.name} has two skills named {', '.join(duplicates)}",
                hint="rename or remove one of them",
            )
