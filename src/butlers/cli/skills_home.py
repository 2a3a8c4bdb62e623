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
    from butlers.config.known_butlers import known_butlers
    from butlers.config.packs import packs_written, source_file

    home, configs = Settings.from_environ().home, _configs()
    found = {config.name: _with_locked(config.directory, config.skills.packs) for config in configs}
    # Where a shipped one's configuration lasts, and those that are elsewhere.
    sources = (source_file(config, home).parent.resolve() for config in configs)
    here = {config.directory.resolve() for config in configs}
    for folder in {*sources, *known_butlers(home)} - here:
        name, packs = packs_written(folder)
        found[name] = (*found.get(name, ()), *_with_locked(folder, packs))
    return found


def _with_locked(folder: Path, packs: Sequence[str]) -> tuple[str, ...]:
    from butlers.skills.lock import LOCK_FILE, read_lock

    return (*packs, *(pack.label for pack in read_lock(folder / LOCK_FILE).values()))


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
