"""Compile patterns and match whole messages; parse reply and argument templates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import re2

from butlers.domain.errors import InvalidArguments

MAX_MESSAGE = 1_000
MAX_PATTERN = 4_000
# Bounds the compiled program, and with it the time of the slowest match: program size times text.
MAX_MEMORY = 1 << 20

_GROUP_NAME = re.compile(r"\(\?P?<([^>]+)>")


@dataclass(frozen=True, slots=True)
class CompiledTrigger:
    pattern: str
    group_numbers: tuple[tuple[str, int], ...]
    _regexp: Any = field(compare=False, repr=False)

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.group_numbers)

    def match(self, text: str) -> dict[str, str | None] | None:
        """Return the named groups of a whole-message match, or None.

        The value of a group that did not match is None.
        """
        message = whole_message(text)
        found = None if message is None else self._regexp.fullmatch(message)
        if found is None:
            return None
        return {name: found[number] for name, number in self.group_numbers}

    def matches(self, text: str) -> bool:
        return self.match(text) is not None


def compile_trigger(pattern: str) -> CompiledTrigger:
    """Compile the pattern; raise InvalidArguments with the engine's message on failure."""
    if len(pattern) > MAX_PATTERN:
        raise InvalidArguments(f"a pattern has at most {MAX_PATTERN:,} characters")
    try:
        regexp = re2.compile(unicodedata.normalize("NFC", pattern), _options())
    except (re2.error, UnicodeEncodeError) as error:
        hint = "RE2 syntax: no look-around, no back-references"
        raise InvalidArguments(f"bad pattern: {_reason(error)}", hint=hint) from None
    _reject_repeated_names(pattern)
    numbers = sorted(regexp.groupindex.items(), key=lambda item: item[1])
    return CompiledTrigger(pattern, tuple(numbers), regexp)


def whole_message(text: str) -> str | None:
    """Return the stripped, normalized message, or None if no pattern may match it."""
    message = text.strip()
    if len(message) > MAX_MESSAGE or "\0" in message or not _encodable(message):
        return None
    return unicodedata.normalize("NFC", message)


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    return options


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    if isinstance(error, UnicodeEncodeError):
        return "it is not valid Unicode"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _reject_repeated_names(pattern: str) -> None:
    # RE2 accepts a repeated name and then returns only the first group's text.
    names = _GROUP_NAME.findall(pattern)
    for name in names:
        if names.count(name) > 1:
            raise InvalidArguments(f"bad pattern: the group name {name!r} is used twice")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Placeholder = tuple[str, ...]

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_PLACEHOLDER = re.compile(r"[\w-]+(?:\.[\w-]+)*")


class TemplateError(ValueError):
    """The template has a syntax error."""


@dataclass(frozen=True, slots=True)
class Template:
    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return tuple(part for part in self.parts if not isinstance(part, str))

    @property
    def whole(self) -> Placeholder | None:
        """The placeholder, if the template is exactly one placeholder."""
        return self.placeholders[0] if len(self.parts) == 1 and self.placeholders else None

    def render(self, resolve: Callable[[Placeholder], str]) -> str:
        letters: list[str] = []  # adding to a text would copy it for each part
        for part in self.parts:
            value = part if isinstance(part, str) else resolve(part)
            if value:
                letters += value
            elif letters and letters[-1] == " ":
                letters.pop()  # "80 {unit}." without a unit is "80.", not "80 ."
        return "".join(letters)


def parse_template(text: str) -> Template:
    parts: list[str | Placeholder] = []
    for is_text, run in groupby(
        map(_part, _TOKEN.finditer(text)), lambda part: isinstance(part, str)
    ):
        if is_text:
            parts.append("".join(part for part in run if isinstance(part, str)))
        else:
            parts += run
    return Template(tuple(parts))


def _part(token: re.Match[str]) -> str | Placeholder:
    inside: str | None = token[1]
    if inside is not None:
        if not _PLACEHOLDER.fullmatch(inside.strip()):
            raise TemplateError(
                f"{token[0]!r} is not a placeholder; write {{name}} or {{name.part}}"
            )
        return tuple(inside.strip().split("."))
    if token[0] in ("{", "}"):
        raise TemplateError(f"a lone {token[0]!r}; write {token[0] * 2!r} for a brace")
    return token[0][0] if token[0] in ("{{", "}}") else token[0]
