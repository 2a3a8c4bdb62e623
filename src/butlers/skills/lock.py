"""``skills.lock``: the exact packs a butler got, with their hashes, so that it gets the same again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from butlers.config.files import replace_file
from butlers.domain.errors import SkillRegistryBroken
from butlers.skills.registry.resolver import Resolution, Resolved
from butlers.skills.tree import translate_os_errors

LOCK_FILE = "skills.lock"


def write_lock(file: Path, resolution: Resolution) -> None:
    document = {
        "butler": resolution.butler,
        "requirements": list(resolution.requirements),
        "packs": [
            {
                "id": pack.id,
                "version": pack.version,
                "hash": pack.digest,
                "owner": pack.owner,
                "requiredBy": list(pack.required_by),
            }
            for pack in resolution.packs
        ],
    }
    replace_file(file, (json.dumps(document, indent=2) + "\n").encode(), 0o644)


def read_lock(file: Path) -> Mapping[str, Resolved]:
    """What was locked, by id; empty without a lock file."""
    with translate_os_errors(file):
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return {}
    try:
        packs = [_pack(entry) for entry in json.loads(content)["packs"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SkillRegistryBroken(
            f"{file}: not a lock of skills: {error!r}",
            hint="delete it: the packs are resolved again, to the newest that fit",
        ) from error
    return {pack.id: pack for pack in packs}


def _pack(entry: Mapping[str, Any]) -> Resolved:
    return Resolved(
        id=str(entry["id"]),
        version=str(entry["version"]),
        digest=str(entry["hash"]),
        owner=str(entry["owner"]),
        required_by=tuple(map(str, entry["requiredBy"])),
    )
