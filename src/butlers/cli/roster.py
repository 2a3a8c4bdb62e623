"""The configurations that a command is about: the fleet's roster and the person's own butlers."""

from __future__ import annotations

from pathlib import Path

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.fleet import FleetConfig, load_fleet_config
from butlers.config.roster import find_butlers, shipped_roster
from butlers.config.settings import Settings

OWN = Path("butlers")


def load_roster(
    settings: Settings, *, refresh: bool = True
) -> tuple[FleetConfig, list[ButlerConfig]]:
    fleet, folders = find_roster(settings, refresh=refresh)
    return fleet, [load_one(folder, settings, fleet) for folder in folders]


def find_roster(
    settings: Settings, *, refresh: bool = True
) -> tuple[FleetConfig, tuple[Path, ...]]:
    """The folders alone, whatever their configurations say."""
    fleet = load_fleet_config(settings)
    own = OWN if OWN.is_dir() else None
    return fleet, find_butlers(fleet, settings, shipped=shipped_roster(), own=own, refresh=refresh)


def load_one(folder: Path, settings: Settings, fleet: FleetConfig) -> ButlerConfig:
    return load_butler_config(folder, settings, default_timezone=fleet.timezone)
