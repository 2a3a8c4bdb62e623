"""The system prompt of a butler's sessions: its soul, what its packs teach, and what its modules remember.

The soul is soul.md if that has any text, else CLAUDE.md. Without packs and memory it is the whole prompt,
byte for byte.

A soul refers to other files in two ways: ``<!-- @include path -->`` is ours; a line that is just ``@path`` is
the CLIs' own, which they do not resolve in a prompt that is passed to them. A path is relative to the file
that names it and must stay within the butler's folder or the ``shared`` one beside it: a butler does not
read another's notes. A reference that cannot be resolved stays as written and is logged. Nothing below the
notes line of AGENTS.md is a reference: sessions wrote that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import structlog

from butlers.config.roster import NOTES_FILE, NOTES_LINE
from butlers.prompt import (
    Prompt,
    PromptTemplate,
    PromptValidationError,
    SectionVisibility,
    SkillsSection,
    Style,
    VerbatimSkill,
)
from butlers.skills.instructions import describe_scripts, read_instructions
from butlers.skills.skill_set import ButlerSkill

log = structlog.get_logger()

FILE = "CLAUDE.md"
SOUL = "soul.md"
SHARED = "shared"
MAX_FILE = 1_000_000  # characters; a prompt of megabytes is a mistake

_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_REFERENCE = re.compile(r"@(?P<path>[^\s@]+)[ \t]*(?P<end>\r?\n?)")
_INCLUDE = re.compile(r"<!--[ \t]*@include[ \t]+(?P<path>[^\s>]+)[ \t]*-->")
_COMMENT_START, _COMMENT_END = "<!--", "-->"
Disclosure = Literal["full", "summary"]
OPEN_SECTIONS_TOOL = "skill_open"
KEY = "skills"
_VISIBILITY = {"full": SectionVisibility.FULL, "summary": SectionVisibility.SUMMARY}


def read_system_prompt(directory: Path, name: str, *context: str, skills: str = "") -> str:
    """Return the system prompt of the butler in this folder: soul, skills and context of modules."""
    return "\n\n".join([with_skills(read_soul(directory, name), skills), *context])


def read_soul(directory: Path, name: str) -> str:
    for file in (directory / SOUL, directory / FILE):
        text = _read(file)
        expanded = "" if text is None else _Expansion(directory).expand(file, text)
        if has_words(expanded):
            return expanded
    return f"You are the {name} butler."


def has_words(text: str) -> bool:
    """Return whether the text has anything but comments."""
    position = 0
    while (start := text.find(_COMMENT_START, position)) >= 0:
        end = text.find(_COMMENT_END, start + len(_COMMENT_START))
        if end < 0 or text[position:start].strip():
            return True  # a comment without an end is text
        position = end + len(_COMMENT_END)
    return bool(text[position:].strip())


class _Expansion:
    def __init__(self, directory: Path) -> None:
        self._roots = (directory.resolve(), (directory.parent / SHARED).resolve())
        self._open: list[Path] = []  # files being expanded, outermost first
        self._left = MAX_FILE  # characters that may still be included

    def expand(self, path: Path, text: str) -> str:
        self._open.append(path.resolve())
        parts, fence = [], None
        lines = text.splitlines(keepends=True)
        noted = _first_note(path, lines)
        for line in lines[:noted]:
            mark = _FENCE.match(line)
            if mark and (fence is None or mark[1].startswith(fence)):
                fence = None if fence else mark[1]
            # A block of code has no references.
            parts.append(line if fence or mark else self._line(line, path.parent))
        self._open.pop()
        return "".join([*parts, *lines[noted:]])

    def _line(self, line: str, folder: Path) -> str:
        if found := _REFERENCE.fullmatch(line):
            body = self._body(found["path"], folder)
            return line if body is None else body + found["end"]
        return _INCLUDE.sub(lambda match: self._included(match, folder), line)

    def _included(self, match: re.Match[str], folder: Path) -> str:
        body = self._body(match["path"], folder)
        return match[0] if body is None else body

    def _body(self, reference: str, folder: Path) -> str | None:
        path = self._find(reference, folder)
        text = None if isinstance(path, _Refused) else _read(path)
        if isinstance(path, _Refused) or text is None:
            why = path if isinstance(path, _Refused) else "there is no readable file"
            log.warning("reference not expanded", reference=reference, of=folder.name, why=why)
            return None
        self._left -= len(text) + 1
        return self.expand(path, text).removesuffix("\n").removesuffix("\r")

    def _find(self, reference: str, folder: Path) -> Path | _Refused:
        try:
            path = (folder / reference).resolve()
        except (OSError, RuntimeError, ValueError):
            return _Refused("not a path")
        if not any(path.is_relative_to(root) for root in self._roots):
            return _Refused("outside the butler's folder and the shared one")
        if path in self._open:
            return _Refused("a file includes itself")
        if self._left <= 0:
            return _Refused("the prompt is too long")
        return path


def _first_note(path: Path, lines: list[str]) -> int:
    """Return the line where notes of sessions begin; the end if there are none."""
    if path.name != NOTES_FILE:
        return len(lines)
    own = (number for number, line in enumerate(lines) if line.rstrip().encode() == NOTES_LINE)
    return next(own, len(lines))


class _Refused(str):
    """The reason why a reference is not expanded."""


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            text = file.read(MAX_FILE + 1)
    except (OSError, ValueError):
        return None
    if len(text) > MAX_FILE:
        log.warning("file cut", file=path.name, characters=MAX_FILE)
    return text[:MAX_FILE]


def skills_text(
    packs: Sequence[ButlerSkill],
    disclosure: Disclosure,
    servers: Sequence[tuple[str, Sequence[str]]],
) -> str:
    """Return the part about packs: instructions, scripts and MCP tools; empty without packs.

    ``servers``: the names of each MCP server's tools at the butler.
    """
    if not packs:
        return ""
    parts = [_instructions(packs, disclosure)]
    if lines := _scripts(packs):
        parts.append("\n".join(["# Available Tools", "", *lines]))
    if servers:
        lines = [f"- {name}: {', '.join(tools)}" for name, tools in servers]
        parts.append("\n".join(["# MCP Tools", "", *lines]))
    skills, *tools = parts
    return "\n\n---\n\n".join([skills, "\n\n".join(tools)] if tools else [skills])


def with_skills(soul: str, text: str) -> str:
    """Put the soul first; without packs it is the whole prompt, byte for byte."""
    return f"# Soul\n\n{soul}\n\n---\n\n{text}" if text else soul


def _instructions(packs: Sequence[ButlerSkill], disclosure: Disclosure) -> str:
    skills = [made for skill in packs if (made := _section(skill, disclosure))]
    section = SkillsSection(title="Available Skills", key=KEY, skills=skills)
    style = Style(numbered=False, opener=OPEN_SECTIONS_TOOL)
    return (
        Prompt(PromptTemplate[None](ns="butler", key="packs", sections=[section], style=style))
        .render()
        .text
    )


def _section(entry: ButlerSkill, disclosure: Disclosure) -> VerbatimSkill | None:
    """Return the section of one skill; None, with an error in the log, if it is not valid."""
    skill = entry.skill
    text = read_instructions(entry.pack) if disclosure == "full" else ""
    try:
        return VerbatimSkill(
            name=skill.name,
            description=skill.description,
            title=f"{skill.title or skill.name} (v{skill.version})",
            template=text or skill.description,
            key=skill.name,
            summary=skill.description,
            visibility=_VISIBILITY[disclosure],
        )
    except PromptValidationError as error:
        log.error("skill is not in the prompt", skill=skill.label, error=error.message)
        return None


def _scripts(packs: Sequence[ButlerSkill]) -> list[str]:
    """List the scripts with the skill that ``skill_run`` takes."""
    return [
        f"- {PurePosixPath(path).name}: {about or 'a script'} (`skill_run`, skill {skill.name})"
        for skill in packs
        if skill.skill.scripts
        for path, about in describe_scripts(skill.pack).items()
    ]
