"""The folders of butlers that have run with this home, wherever they lie.

The roster lies in the home, and a person's own butlers are looked for where a command is given; one that was
started from elsewhere would be forgotten by whoever asks what is still in use.
"""

from __future__ import annotations

import json
from pathlib import Path

from butlers.config.butler import CONFIG_FILE
from butlers.config.files import exclusive_lock, make_private_folder, replace_file
from butlers.config.working_copy import working_copy

_FILE, _LOCK = "butlers.json", ".butlers.lock"


def remember_butler(home: Path, directory: Path) -> None:
    """From its start on, until its butler.toml is gone. Those of the roster are found without it."""
    folder = directory.resolve()
    if folder.is_relative_to(working_copy(home).resolve()):
        return
    make_private_folder(home / "registry")
    with exclusive_lock(home / "registry" / _LOCK):
        before = known_butlers(home)
        if folder not in before:
            listed = sorted(str(path) for path in (*before, folder))
            replace_file(home / "registry" / _FILE, json.dumps(listed, indent=2).encode())


def known_butlers(home: Path) -> tuple[Path, ...]:
    """Those that are still there, as far as can be told."""
    try:
        listed = json.loads((home / "registry" / _FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return ()  # it is written anew as butlers start
    paths = (
        [Path(path) for path in listed if isinstance(path, str)] if isinstance(listed, list) else []
    )
    return tuple(path for path in paths if may_be_there(path))


def may_be_there(folder: Path) -> bool:
    """Whether the folder has a configuration; one that can not be looked at (a dead mount, no permission)
    may have one."""
    try:
        return (folder / CONFIG_FILE).is_file()
    except OSError:
        return True
