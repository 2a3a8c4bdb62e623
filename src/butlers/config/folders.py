"""Folders of butlers, found without reading their configurations. Standard library only, for commands."""

from __future__ import annotations

import tomllib
from pathlib import Path

CONFIG_FILE = "butler.toml"
FLEET_FILE = "fleet.toml"
DEFAULT_ROSTER = (
    "switchboard",
    "messenger",
    "general",
    "relationship",
    "health",
    "finance",
    "travel",
)


def may_have_config(folder: Path) -> bool:
    """Return whether the folder has a configuration; True for a folder that cannot be read."""
    try:
        return (folder / CONFIG_FILE).is_file()
    except OSError:
        return True


def butlers_in(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    found = (path for path in sorted(folder.iterdir()) if may_have_config(path))
    return {path.name: path for path in found if not path.name.startswith(".")}


def listed_roster(home: Path) -> tuple[str, ...] | None:
    """Return the shipped butlers that fleet.toml lists; None if that takes a full reading of the file."""
    try:
        listed = tomllib.loads((home / FLEET_FILE).read_text()).get("roster", DEFAULT_ROSTER)
    except (OSError, ValueError):
        return None
    if not isinstance(listed, list | tuple) or not all(isinstance(name, str) for name in listed):
        return None
    return None if any("$" in name for name in listed) else tuple(listed)
