"""A prompt that is not yet bound to anything: named, with its sections, checked once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from butlers.domain.errors import PromptValidationError
from butlers.prompt.params import generic_arguments
from butlers.prompt.section import Section
from butlers.prompt.skill import Skill
from butlers.prompt.style import OPEN_SECTIONS, Style

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
                    f"{what[:80]!r} can not be the ns or key of a prompt",
                    hint="letters, digits, and . _ - / between them",
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
                f"{self.name}: an answer is text, or a dataclass, and no {kind!r}",
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
    def claimed(self) -> frozenset[type]:
        """The types of params that some section asks for by name."""
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
                _ = tool.schema  # what can not be described is found here, not in a session

    def _check_skills(self) -> None:
        """One home holds them all, and there a name is a folder."""
        names = [one.name for one in self.all_sections() if isinstance(one, Skill)]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise PromptValidationError(
                f"{self.name} has two skills of the name {', '.join(twins)}",
                hint="rename one of them, or take one out",
            )
