"""The part of the system prompt that packs have: what they teach, their scripts, and their MCP tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from butlers.skills.opening import instructions, scripts
from butlers.skills.shelf import Shelved

Disclosure = Literal["full", "summary"]


def skills_text(
    packs: Sequence[Shelved], disclosure: Disclosure, servers: Sequence[tuple[str, Sequence[str]]]
) -> str:
    """Empty without packs. ``servers``: the tools of each MCP server, as the butler calls them."""
    if not packs:
        return ""
    told = [f"# Available Skills\n\n{chr(10).join(_taught(packs, disclosure))}".rstrip()]
    if lines := _scripts(packs):
        told.append("\n".join(["# Available Tools", "", *lines]))
    if servers:
        lines = [f"- {name}: {', '.join(tools)}" for name, tools in servers]
        told.append("\n".join(["# MCP Tools", "", *lines]))
    skills, *tools = told
    return "\n\n---\n\n".join([skills, "\n\n".join(tools)] if tools else [skills])


def with_skills(soul: str, text: str) -> str:
    """The soul first; without packs it is the prompt, to the byte."""
    return f"# Soul\n\n{soul}\n\n---\n\n{text}" if text else soul


def _taught(packs: Sequence[Shelved], disclosure: Disclosure) -> list[str]:
    lines = []
    for shelved in packs:
        skill = shelved.skill
        lines += [f"## {skill.title or skill.name} (v{skill.version})", "", skill.description, ""]
        if disclosure == "full" and (text := instructions(shelved.pack)):
            lines[-2:] = [text, ""]
        elif disclosure == "summary":
            lines += [f'`skill_open` with "{skill.name}" says how.', ""]
    return lines


def _scripts(packs: Sequence[Shelved]) -> list[str]:
    """`skill_run` takes the skill's name and the script's."""
    return [
        f"- {PurePosixPath(path).name}: {said or 'a script'} (`skill_run`, skill {shelved.name})"
        for shelved in packs
        if shelved.skill.scripts
        for path, said in scripts(shelved.pack).items()
    ]
