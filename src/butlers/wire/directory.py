"""The directory of running butlers: one small file per butler under BUTLERS_HOME/run.

Commands read these files instead of the configuration, which is faster and also right for a port that was
chosen at start. A file left by a killed process is harmless: the next start of that butler replaces it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from butlers.config.files import make_private_folder, replace_file
from butlers.domain.errors import PeerUnavailable

START_HINT = "start the fleet with `make up` (or `butlers up`), in another terminal"


@dataclass(frozen=True, slots=True)
class RunningButler:
    name: str
    url: str
    pid: int
    description: str = ""
    directory: str = ""  # of its configuration


def announce(
    home: Path, name: str, url: str, *, description: str = "", directory: Path | None = None
) -> Path:
    path = home / "run" / f"{name}.json"
    make_private_folder(path.parent)
    entry = RunningButler(name, url, os.getpid(), description, str(directory or ""))
    replace_file(path, json.dumps(asdict(entry)).encode())
    return path


def entries(home: Path) -> dict[str, RunningButler]:
    found: dict[str, RunningButler] = {}
    for path in sorted((home / "run").glob("*.json")):
        try:
            entry = RunningButler(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            continue  # it is being replaced, or is another program's file
        found[entry.name] = entry
    return found


def find(home: Path, name: str) -> RunningButler:
    known = entries(home)
    if name in known:
        return known[name]
    hint = f"running: {', '.join(known)}" if known else START_HINT
    raise PeerUnavailable(f"no butler {name!r} runs from {home}", hint=hint)
