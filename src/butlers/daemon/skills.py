"""Opens a butler's skills and collects the tools they bring."""

from __future__ import annotations

import asyncio
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

import structlog

from butlers.config.packs import packs_named
from butlers.config.roster import remember_butler
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.process.sandbox import sandbox_problem
from butlers.sessions.skill_maker import PendingDraft, SkillMaker
from butlers.sessions.skills import ButlerSkills
from butlers.skills.names import is_kebab, slug
from butlers.skills.reader import scan_skills
from butlers.skills.registry.built_in import butler_tools_of
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.scripts.runner import DEFAULT_PATH, ScriptRunner
from butlers.skills.skill_set import FOLDER, ButlerSkillSet
from butlers.tools import mail
from butlers.tools.declaration import ToolSpec, spec_of
from butlers.tools.skills import pack_tools, skill_specs, soul_specs

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

log = structlog.get_logger()

_DRAFT_NOTICE_IDS = UUID("6f0f0b52-8f5a-4d0c-9a51-1b0a3a1f7c34")

Declared = list[tuple[str, ToolSpec]]


async def open_skills(butler: Butler) -> ButlerSkills:
    config = butler.config
    await asyncio.to_thread(_record_folder, butler)
    await asyncio.to_thread(sandbox_problem)  # asked once, here, where nobody waits for it
    registry = SkillRegistry(butler.home, partial(packs_named, config, butler.settings))
    skill_set = await asyncio.to_thread(
        ButlerSkillSet.open, registry, config.name, config.directory, config.skills.packs
    )
    problems = await asyncio.to_thread(folder_problems, config.directory)
    for found in problems:
        log.warning("skill problem", **found.as_dict())
    skills = ButlerSkills(
        config,
        skill_set,
        SkillMaker(skill_set, partial(_report_draft, butler)),
        butler.credentials,
        ScriptRunner(
            butler.home,
            butler.settings.environ.get("PATH") or DEFAULT_PATH,
            butler.sandbox_required,
        ),
        lambda *lent: butler.guard.lend(*lent),  # the guard is created later
        lambda: butler.url,
        diagnostics=problems,
    )
    butler.stack.push_async_callback(skills.close)
    await skills.open()
    return skills


def folder_problems(directory: Path) -> tuple[Diagnostic, ...]:
    """Return the problems of a butler's skills folder: wrong names, names that appear twice, limits."""
    root = directory / FOLDER
    if not root.is_dir():
        return ()
    scan = scan_skills(root, directory.parent / "shared" / FOLDER)
    wrong = (found.folder for found in scan.skills if not is_kebab(found.folder.name))
    return (*scan.diagnostics, *(_wrong_name(folder) for folder in wrong))


def _wrong_name(folder: Path) -> Diagnostic:
    near = slug(folder.name)
    return Diagnostic(
        "folder-name",
        Severity.ERROR,
        f"the skill's folder name {folder.name!r} is not kebab-case",
        folder,
        hint=f"rename it to {near}" if near else "lower-case letters, digits, single hyphens",
    )


def _record_folder(butler: Butler) -> None:
    """Record the butler's folder for ``butlers skills remove``. The butler runs without it."""
    folder = butler.config.directory
    try:
        remember_butler(butler.home, folder)
    except OSError as error:
        log.warning("butler folder not recorded", folder=str(folder), error=str(error))


def _mail_tools(butler: Butler) -> list[ToolSpec]:
    """Return the tools for scripts of shipped packs, if the butler has such a pack."""
    asked = {
        name for pack in butler.skills.skill_set.packs() for name in butler_tools_of(pack.skill)
    }
    specs = [spec_of(function) for function in mail.TOOLS]
    return [spec for spec in specs if spec.name in asked]


async def _report_draft(butler: Butler, draft: PendingDraft) -> None:
    """Ask the owner to approve a skill that the butler made."""
    name = butler.config.name
    message = (
        f"{name} made the skill {draft.label}: {draft.description}\n"
        f"It is a draft. `butlers skills approve {shlex.quote(draft.label)}` lets its scripts run,"
        " and others use it."
    )
    await butler.tell_owner(
        uuid5(_DRAFT_NOTICE_IDS, f"{name}\n{draft.label}\n{draft.digest}"), message
    )


def with_skill_tools(butler: Butler, declared: Declared) -> Declared:
    """Add the tools of the skills. A pack's tool cannot replace another tool."""
    souls = soul_specs(by_sessions=butler.config.skills.allow_soul_edit)
    own = (
        ("the skills", spec) for spec in (*skill_specs(butler.skills), *souls, *_mail_tools(butler))
    )
    known = [*declared, *own]
    taken = frozenset(name for _, spec in known for name in (spec.name, *spec.aliases))
    return [*known, *(("a pack", spec) for spec in pack_tools(butler.skills, taken))]
