"""The packs that come with Butlers. None is given to a butler that does not name it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from butlers.domain.errors import SkillNotFound
from butlers.skills.registry.catalogue import Registered
from butlers.skills.registry.registry import NewSkill, SkillRegistry
from butlers.skills.skill import BUILT_IN, Skill

_SHARED = "_shared"  # what several of them use, linked into each
# What they are told by variables that are no secrets: an answer may contain their values.
SETTINGS = frozenset({"HTTP_ALLOWED_HOSTS"})
# What their scripts may ask the butler for, with a token of their own. Nobody else's pack has one.
MAIL_TOOLS = frozenset({"mail_inbox", "mail_search", "mail_stats"})
CRON_TOOLS = frozenset({"schedule_list", "schedule_create", "schedule_update", "schedule_delete"})
_TOOLS = {"mail-tools": MAIL_TOOLS, "cron-tools": CRON_TOOLS}


def tools_of(skill: Skill) -> frozenset[str]:
    return _TOOLS.get(skill.name, frozenset()) if skill.owner == BUILT_IN else frozenset()


def built_in_packs() -> Iterator[Path]:
    """The folder of each of them."""
    for folder in sorted((Path(__file__).parents[1] / "built_in").iterdir()):
        if (folder / "manifest.json").is_file():
            yield folder


def register_built_in(registry: SkillRegistry) -> Iterator[Registered]:
    """Register each of them, or the version that this release brings."""
    for folder in built_in_packs():
        try:
            registry.get(folder.name)
        except SkillNotFound:
            yield registry.register(_new(folder))
        else:
            yield registry.update(_new(folder))


def _new(folder: Path) -> NewSkill:
    return NewSkill(folder, shared=(folder.parent / _SHARED).resolve())
