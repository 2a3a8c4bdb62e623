"""What every ``butlers skills`` command begins with: the home's registry, and the butlers that use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from butlers.config.settings import Settings
from butlers.domain.errors import NotFound

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig
    from butlers.skills.registry import NewSkill, SkillRegistry

# Who owns a skill that names nobody, when a person brings it in.
PERSON = "person"


def open_registry() -> SkillRegistry:
    from butlers.skills.registry import SkillRegistry

    return SkillRegistry(Settings.from_environ().home, _packs_of)


def _packs_of() -> Mapping[str, Sequence[str]]:
    """What each butler names, and the versions that its lock holds on to."""
    from butlers.skills.lock import LOCK_FILE, read_lock

    return {
        config.name: (
            *config.skills.packs,
            *(pack.label for pack in read_lock(config.directory / LOCK_FILE).values()),
        )
        for config in _configs()
    }


def _configs() -> list[ButlerConfig]:
    from butlers.cli.roster import load_roster

    return load_roster(Settings.from_environ(), refresh=False)[1]


def config_of(butler: str) -> ButlerConfig:
    configs = {config.name: config for config in _configs()}
    if butler not in configs:
        raise NotFound(f"there is no butler {butler!r}", hint=f"there are: {', '.join(configs)}")
    return configs[butler]


def new_skill(folder: Path, owner: str, version: str | None) -> NewSkill:
    from butlers.skills.registry import NewSkill

    return NewSkill(folder, owner=owner, version=version)


def split_label(label: str) -> tuple[str, str | None]:
    name, _at, version = label.partition("@")
    return name, version or None
