"""What every ``butlers skills`` command begins with: the home's registry, and the butlers that use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from butlers.config.settings import Settings
from butlers.domain.errors import ConfigError, NotFound, SkillError

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig
    from butlers.config.fleet import FleetConfig
    from butlers.skills.registry import NewSkill, SkillRegistry

# Who owns a skill that names nobody, when a person brings it in.
PERSON = "person"


def open_registry() -> SkillRegistry:
    from butlers.skills.registry import SkillRegistry

    home = Settings.from_environ().home
    return SkillRegistry(home, lambda: _users().packs, unreadable=lambda: _users().unreadable)


@dataclass(frozen=True, slots=True)
class _Users:
    """What each butler names, and the versions that its lock holds on to; and what of it can not be read."""

    packs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def _users() -> _Users:
    from butlers.cli.roster import find_roster
    from butlers.config.known_butlers import known_butlers
    from butlers.config.packs import source_file

    settings = Settings.from_environ()
    home = settings.home
    fleet, roster = find_roster(settings, refresh=False)
    # Where a shipped one's configuration lasts, and those that are elsewhere.
    lasting = (source_file(folder, home).parent for folder in roster)
    users, known = _Users(), tuple[Path, ...]()
    try:
        known = known_butlers(home)
    except OSError as error:
        users.unreadable.append(str(error))
    for folder in {path.resolve(): None for path in (*roster, *lasting, *known)}:
        try:
            name, packs = _named(folder, settings, fleet)
        except ConfigError as error:
            users.unreadable.append(error.message)
            name, packs = folder.name, ()
        users.packs[name] = (*users.packs.get(name, ()), *packs)
        try:
            users.packs[name] += _locked(folder)
        except SkillError as error:
            users.unreadable.append(error.message)
    return users


def _named(folder: Path, settings: Settings, fleet: FleetConfig) -> tuple[str, tuple[str, ...]]:
    """Also of one that could not start as it is."""
    from butlers.cli.roster import load_one
    from butlers.config.packs import packs_written

    try:
        config = load_one(folder, settings, fleet)
    except ConfigError:
        return packs_written(folder)
    return config.name, tuple(config.skills.packs)


def _locked(folder: Path) -> tuple[str, ...]:
    from butlers.skills.lock import LOCK_FILE, read_lock

    return tuple(pack.label for pack in read_lock(folder / LOCK_FILE).values())


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
