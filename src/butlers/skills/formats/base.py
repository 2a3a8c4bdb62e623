"""Interface of a skill format, and text helpers that all formats use."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from butlers.config.locate import Place, place_of
from butlers.domain.diagnostic import Diagnostic
from butlers.skills.findings import Findings
from butlers.skills.skill import SkillSpec

# An unpaired surrogate, which a JSON or YAML escape can produce, cannot be encoded as UTF-8.
SURROGATE = re.compile("[\ud800-\udfff]")
SURROGATE_MESSAGE = "an escape sequence is half of a character; it was replaced"


def replace_surrogates(text: str) -> str:
    return SURROGATE.sub("\ufffd", text)


def decode(content: bytes, findings: Findings) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        findings.add(
            "skill-encoding", "the file is UTF-16", at=Place(1, 1), hint="save it as UTF-8"
        )
        return content.decode("utf-16", "replace").removeprefix("\ufeff")
    if content.startswith(codecs.BOM_UTF8):
        findings.add("skill-bom", "the file begins with a byte order mark", at=Place(1, 1))
        content = content[len(codecs.BOM_UTF8) :]
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        findings.add(
            "skill-encoding",
            f"byte {content[error.start]:#04x} is not UTF-8",
            at=place_of(before, len(before)),
            hint="save the file as UTF-8",
        )
        return content.decode("utf-8", "replace")


_TOOL_MARK = re.compile(r"[\s,()]")


def split_tools(written: str) -> tuple[str, ...]:
    """Split a list of tools at blanks and commas: `Bash(git add *) Read` is two.

    Parentheses keep their content together; one that is not closed extends to the end.
    """
    tools: list[str] = []
    start = depth = 0
    for mark in _TOOL_MARK.finditer(written):
        if mark[0] == "(":
            depth += 1
        elif mark[0] == ")":
            depth = max(0, depth - 1)
        elif depth == 0:
            tools.append(written[start : mark.start()])
            start = mark.end()
    tools.append(written[start:].rstrip())
    return tuple(tool for tool in tools if tool)


def is_space_separated(written: str, tools: tuple[str, ...]) -> bool:
    """Return True if single spaces separate the tools, as the standard requires."""
    return " ".join(tools) == written.strip()


@dataclass(frozen=True, slots=True)
class SkillFile:
    """Path and bytes of a file that is not trusted."""

    file: Path
    content: bytes

    @property
    def folder_name(self) -> str:
        return replace_surrogates(self.file.parent.name)  # the name may not be UTF-8


def _nowhere(_field: str, _path: str | None = None) -> Place | None:
    return None


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of reading a file; ``skill`` is None if nothing was usable.

    ``traits`` are constructs that this reader accepts and other clients reject. ``where`` returns
    the place of a pack's field, or of one path in it, for checks that run later.
    """

    skill: SkillSpec | None
    diagnostics: tuple[Diagnostic, ...] = ()
    traits: frozenset[str] = frozenset()
    where: Callable[..., Place | None] = field(default=_nowhere, compare=False, repr=False)

    def without_places(self) -> Reading:
        """Return a copy that does not hold the file's text in memory."""
        return replace(self, where=_nowhere)

    def codes(self) -> frozenset[str]:
        return frozenset(found.code for found in self.diagnostics)


class SkillFormat(Protocol):
    """One skill format. ``file_names`` lists accepted file names, the preferred spelling first."""

    file_names: tuple[str, ...]

    def read(self, source: SkillFile) -> Reading:
        """Read any bytes without raising."""
        ...

    def render(self, skill: SkillSpec) -> Mapping[str, bytes]:
        """Return the files by path; raise InvalidSkill that names everything that cannot be written."""
        ...
