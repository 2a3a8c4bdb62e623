"""Bytes of a skill's file, with the places of offsets in them, and the patterns to search them with."""

from __future__ import annotations

from typing import Any

import re2

from butlers.config.locate import Place


class SkillText:
    """Text as UTF-8 bytes. ``place`` counts each line once if the offsets increase."""

    __slots__ = ("_line", "_seen", "_start", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._seen = self._start = 0
        self._line = 1

    @classmethod
    def of(cls, text: str) -> SkillText:
        return cls(text.encode("utf-8", "replace"))

    def place(self, offset: int) -> Place:
        """Return line and column; columns count characters."""
        if offset < self._seen:
            self._seen, self._start, self._line = 0, 0, 1
        self._line += self.data.count(b"\n", self._seen, offset)
        self._start = self.data.rfind(b"\n", self._seen, offset) + 1 or self._start
        self._seen = offset
        return Place(self._line, len(decoded(self.data[self._start : offset])) + 1)


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def linear(pattern: bytes, *, unicode: bool = False, ignore_case: bool = False) -> Any:
    """Compile a pattern over bytes whose search takes linear time on any text."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    if not unicode:
        options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(pattern, options)
