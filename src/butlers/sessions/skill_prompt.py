"""The part of the system prompt that packs have: what they teach, their scripts, and their MCP tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

import structlog

from butlers.prompt import (
    Prompt,
    PromptTemplate,
    PromptValidationError,
    SectionVisibility,
    SkillsSection,
    Style,
    VerbatimSkill,
)
from butlers.skills.instructions import instructions, scripts
from butlers.skills.skill_set import ButlerSkill

log = structlog.get_logger()

Disclosure = Literal["full", "summary"]

OPEN_SECTIONS_TOOL = "skill_open"
KEY = "skills"
_VISIBILITY = {"full": SectionVisibility.FULL, "summary": SectionVisibility.SUMMARY}


def skills_text(
    packs: Sequence[ButlerSkill],
    disclosure: Disclosure,
    servers: Sequence[tuple[str, Sequence[str]]],
) -> str:
    """Empty without packs. ``servers``: the tools of each MCP server, as the butler calls them."""
    if not packs:
        return ""
    told = [_taught(packs, disclosure)]
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


def _taught(packs: Sequence[ButlerSkill], disclosure: Disclosure) -> str:
    skills = [made for shelved in packs if (made := _section(shelved, disclosure))]
    section = SkillsSection(title="Available Skills", key=KEY, skills=skills)
    style = Style(numbered=False, opener=OPEN_SECTIONS_TOOL)
    return (
        Prompt(PromptTemplate[None](ns="butler", key="packs", sections=[section], style=style))
        .render()
        .text
    )


def _section(shelved: ButlerSkill, disclosure: Disclosure) -> VerbatimSkill | None:
    """None for one that can not be told; the sessions go on without it, and the log says why."""
    skill = shelved.skill
    text = instructions(shelved.pack) if disclosure == "full" else ""
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
    """`skill_run` takes the skill's name and the script's."""
    return [
        f"- {PurePosixPath(path).name}: {said or 'a script'} (`skill_run`, skill {shelved.name})"
        for shelved in packs
        if shelved.skill.scripts
        for path, said in scripts(shelved.pack).items()
    ]
