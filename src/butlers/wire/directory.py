"""Which butlers run from this home, and where: one small file each, written while they serve.

Commands read these instead of the configuration, which is faster and right even for a port that was
picked at start. A file left by a killed process is harmless: nobody answers there, and the next start
of that butler replaces it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from butlers.domain.errors import PeerUnavailable

START_HINT = "start the fleet with `make up` (or `butlers up`), in another terminal"


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    url: str
    pid: int


def announce(home: Path, name: str, url: str) -> Path:
    folder = home / "run"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}.json"
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_text(json.dumps(asdict(Entry(name, url, os.getpid()))))
    scratch.replace(path)
    return path


def entries(home: Path) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for path in sorted((home / "run").glob("*.json")):
        try:
            entry = Entry(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue  # it is being replaced, or is none of ours
        found[entry.name] = entry
    return found


def find(home: Path, name: str) -> Entry:
    known = entries(home)
    if name in known:
        return known[name]
    hint = f"running: {', '.join(known)}" if known else START_HINT
    raise PeerUnavailable(f"no butler {name!r} runs from {home}", hint=hint)
