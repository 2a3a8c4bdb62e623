"""Which of the commands that were granted may be granted."""

from __future__ import annotations

import re
from pathlib import Path

from butlers.runtimes.base import Grants

PLAIN = re.compile(r"[\w./ -]+")  # nothing that a shell or a rule would read as more


def harmless(grants: Grants, cwd: Path) -> tuple[str, ...]:
    """Without those that mean more to a shell than they say, or that lead out of what may be read."""
    folders = [folder.resolve() for folder in grants.readable]
    return tuple(one for one in grants.commands if _plain(one) and _inside(one, cwd, folders))


def _plain(command: str) -> bool:
    return PLAIN.fullmatch(command) is not None and ".." not in command and bool(command.split())


def _inside(command: str, cwd: Path, folders: list[Path]) -> bool:
    places = [(cwd / word).resolve() for word in command.split()[1:]]
    return all(any(place.is_relative_to(folder) for folder in folders) for place in places)
