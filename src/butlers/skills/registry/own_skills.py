"""Hashes of skills in butlers' own folders that the owner has agreed to: only those get secrets.

A butler's own skill is not registered, so anything that can write into the butler's folder can change it.
The record, ``$BUTLERS_HOME/registry/own-skills.json``, lies where no session and no script can write.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from butlers.config.files import exclusive_lock, make_private_folder, replace_file
from butlers.domain.errors import SkillError
from butlers.skills.registry.packs import copy_verified

FILE = "registry/own-skills.json"
_LOCK = "registry/own-skills.lock"


def agreed_digest(home: Path, butler: str, folder: str) -> str | None:
    """Return the hash that the owner agreed to for this skill folder; None if there is none."""
    found = _read(home).get(butler, {}).get(folder)
    return found if isinstance(found, str) else None


def agree(home: Path, butler: str, folder: Path, shared: Path | None) -> str:
    """Record the present hash of the skill, and return it."""
    digest = digest_as_copied(folder, shared)
    make_private_folder((home / FILE).parent)
    with exclusive_lock(home / _LOCK):
        record = _read(home)
        record.setdefault(butler, {})[folder.name] = digest
        replace_file(home / FILE, json.dumps(record, indent=2, sort_keys=True).encode() + b"\n")
    return digest


def digest_as_copied(folder: Path, shared: Path | None) -> str:
    """Return the hash that a run's copy has: with links as the files they point to."""
    with tempfile.TemporaryDirectory(prefix="butlers-skill-") as place:
        return copy_verified(folder, Path(place), None, shared=shared)


def _read(home: Path) -> dict[str, dict[str, str]]:
    try:
        record = json.loads((home / FILE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SkillError(f"{home / FILE} cannot be read: {error}") from error
    if not isinstance(record, dict) or not all(isinstance(one, dict) for one in record.values()):
        raise SkillError(f"{home / FILE} is not a record of hashes", hint="remove the file")
    return record
