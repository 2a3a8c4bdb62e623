"""The one way to compile a pattern and to hold it against a whole message."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
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
        """The named groups of a whole-message match (None for one that took no part), or None."""
        message = whole_message(text)
        found = None if message is None else self._regexp.fullmatch(message)
        if found is None:
            return None
        return {name: found[number] for name, number in self.group_numbers}

    def matches(self, text: str) -> bool:
        return self.match(text) is not None


def compile_trigger(pattern: str) -> CompiledTrigger:
    """The pattern, ready to match; InvalidArguments with the engine's words if it is not one."""
    if len(pattern) > MAX_PATTERN:
        raise InvalidArguments(f"a pattern has at most {MAX_PATTERN:,} characters")
    try:
        regexp = re2.compile(unicodedata.normalize("NFC", pattern), _options())
    except (re2.error, UnicodeEncodeError) as error:
        hint = "RE2 syntax: no look-around, no back-references"
        raise InvalidArguments(f"bad pattern: {_reason(error)}", hint=hint) from None
    _refuse_repeated_names(pattern)
    numbers = sorted(regexp.groupindex.items(), key=lambda item: item[1])
    return CompiledTrigger(pattern, tuple(numbers), regexp)


def whole_message(text: str) -> str | None:
    """What a pattern sees of a message; None for one that no pattern may match."""
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


def _refuse_repeated_names(pattern: str) -> None:
    # RE2 accepts a name twice and then knows only the first, which would lose what the second took.
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
