"""The skill registry with its users: packs that the configurations and lock files of butlers name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from butlers.cli.fleet import find_roster, load_butler
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigError, SkillError

if TYPE_CHECKING:
    from butlers.config.fleet import FleetConfig
    from butlers.skills.registry.registry import SkillRegistry


def open_registry() -> SkillRegistry:
    from butlers.skills.registry.registry import SkillRegistry

    home = Settings.from_environ().home
    return SkillRegistry(home, lambda: _users().packs, unreadable=lambda: _users().unreadable)


@dataclass(frozen=True, slots=True)
class _Users:
    """Packs that each butler names or locks, and the errors of files that cannot be read."""

    packs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)


def _users() -> _Users:
    from butlers.config.packs import shipped_folder
    from butlers.config.roster import known_butlers

    settings = Settings.from_environ()
    home = settings.home
    fleet, roster = find_roster(settings, refresh=False)
    # The working copy of a shipped butler, its next content, and butlers in other folders.
    lasting = (shipped_folder(folder, home) for folder in roster)
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
    """Return name and packs of a butler, also if its configuration is otherwise invalid."""
    from butlers.config.overrides import find_override
    from butlers.config.packs import packs_written

    try:
        config = load_butler(folder, settings, fleet)
    except ConfigError:
        return packs_written(folder, find_override(folder, settings.home))
    return config.name, tuple(config.skills.packs)


def _locked(folder: Path) -> tuple[str, ...]:
    from butlers.skills.registry.resolver import LOCK_FILE, read_lock

    return tuple(pack.label for pack in read_lock(folder / LOCK_FILE).values())
