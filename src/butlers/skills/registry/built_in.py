"""Packs that ship with Butlers. A butler has one only if its configuration names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from butlers.domain.errors import SkillNotFound
from butlers.skills.registry.catalog import RegisteredSkill
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.skill import BUILT_IN, SkillSpec

_FOLDER = Path(__file__).parents[1] / "built_in"
_SHARED = "_shared"  # files of several packs, linked into each
# Declared variables of these packs that are settings, not secrets: an answer may contain them.
SETTINGS = frozenset({"HTTP_ALLOWED_HOSTS"})
# Tools of the butler that their scripts may call, with a token of their own. No other pack gets one.
MAIL_TOOLS = frozenset({"mail_inbox", "mail_search", "mail_stats"})
CRON_TOOLS = frozenset({"schedule_list", "schedule_create", "schedule_update", "schedule_delete"})
_TOOLS = {"mail-tools": MAIL_TOOLS, "cron-tools": CRON_TOOLS}
# Packs that write into the butler's folder and make requests, each within limits of their own.
_OUTWARD = frozenset({"basic-tools"})


def butler_tools_of(skill: SkillSpec) -> frozenset[str]:
    """Return the tools of the butler that the skill's scripts may call."""
    return _TOOLS.get(skill.name, frozenset()) if skill.owner == BUILT_IN else frozenset()


def is_outward(skill: SkillSpec) -> bool:
    """Return whether it is a shipped pack that needs the butler's whole folder and the network."""
    return skill.owner == BUILT_IN and skill.name in _OUTWARD


def reads_only_butler(skill: SkillSpec) -> bool:
    """Return whether the scripts are ours and read nothing but what tools of the butler return.

    The tools themselves mark text of other people.
    """
    return skill.owner == BUILT_IN and not skill.network and not is_outward(skill)


def built_in_packs() -> Iterator[Path]:
    """Yield the folder of each pack."""
    for folder in sorted(_FOLDER.iterdir()):
        if (folder / "manifest.json").is_file():
            yield folder


def register_built_in(registry: SkillRegistry) -> Iterator[RegisteredSkill]:
    """Register each pack, or add the version of this release to it."""
    for folder in built_in_packs():
        new = NewSkill(folder, shared=(_FOLDER / _SHARED).resolve())
        try:
            registry.get(folder.name)
        except SkillNotFound:
            yield registry.register(new)
        else:
            yield registry.update(new)
