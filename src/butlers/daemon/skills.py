"""How a butler comes by its skills, and which tools they give it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

import structlog

from butlers.config.packs import packs_named
from butlers.config.roster import remember_butler
from butlers.sessions.skill_maker import PendingDraft, SkillMaker
from butlers.sessions.skills import ButlerSkills
from butlers.skills.registry.built_in import butler_tools_of
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.scripts.runner import DEFAULT_PATH, ScriptRunner
from butlers.skills.skill_set import ButlerSkillSet
from butlers.tools import mail
from butlers.tools.declaration import ToolSpec, spec_of
from butlers.tools.skills import pack_tools, skill_specs, soul_specs

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

_TOLD = UUID("6f0f0b52-8f5a-4d0c-9a51-1b0a3a1f7c34")

Declared = list[tuple[str, ToolSpec]]


async def open_skills(butler: Butler) -> ButlerSkills:
    config = butler.config
    await asyncio.to_thread(_remember, butler)
    registry = SkillRegistry(butler.home, partial(packs_named, config, butler.settings))
    skill_set = await asyncio.to_thread(
        ButlerSkillSet.open, registry, config.name, config.directory, config.skills.packs
    )
    skills = ButlerSkills(
        config,
        skill_set,
        SkillMaker(skill_set, partial(_tell_of_draft, butler)),
        butler.credentials,
        ScriptRunner(butler.home, butler.settings.environ.get("PATH") or DEFAULT_PATH),
        lambda *lent: butler.guard.lend(*lent),  # there is a guard once there are sessions
        lambda: butler.url,
    )
    butler.stack.push_async_callback(skills.close)
    await skills.open()
    return skills


def _remember(butler: Butler) -> None:
    """Nobody needs it to be remembered in order to run: it is there for whoever removes a skill."""
    folder = butler.config.directory
    try:
        remember_butler(butler.home, folder)
    except OSError as error:
        log.warning("butler not remembered", folder=str(folder), error=str(error))


def _mail(butler: Butler) -> list[ToolSpec]:
    """What scripts of packs that come with us ask for, where the butler has such a pack."""
    asked = {name for pack in butler.skills.skill_set.packs() for name in butler_tools_of(pack.skill)}
    specs = [spec_of(function) for function in mail.TOOLS]
    return [spec for spec in specs if spec.name in asked]


async def _tell_of_draft(butler: Butler, draft: PendingDraft) -> None:
    """Who decides what becomes of it."""
    name = butler.config.name
    message = (
        f"{name} has made the skill {draft.label}: {draft.description}\n"
        f"It is a draft. `butlers skills approve {draft.label}` lets its scripts run, and others use it."
    )
    await butler.tell_owner(uuid5(_TOLD, f"{name}\n{draft.label}\n{draft.digest}"), message)


def with_skill_tools(butler: Butler, declared: Declared) -> Declared:
    """The butler's tools and those of its skills. One of a pack never takes another one's name."""
    souls = soul_specs(by_sessions=butler.config.skills.allow_soul_edit)
    own = (("the skills", spec) for spec in (*skill_specs(butler.skills), *souls, *_mail(butler)))
    known = [*declared, *own]
    taken = frozenset(name for _, spec in known for name in (spec.name, *spec.aliases))
    return [*known, *(("a pack", spec) for spec in pack_tools(butler.skills, taken))]
