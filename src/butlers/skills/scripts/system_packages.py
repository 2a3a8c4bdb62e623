"""System packages that a skill names: looked for, never installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

# One file for each installed package, by name or by name and architecture.
DPKG = Path("/var/lib/dpkg/info")
APK = Path("/lib/apk/db/installed")
_LARGEST = 64 << 20


def missing_packages(
    wanted: Sequence[str], search_path: str, *, dpkg: Path = DPKG, apk: Path = APK
) -> tuple[str, ...]:
    """Return the packages that this system lacks: neither installed by its package manager, nor the name
    of a program."""
    lacking = [name for name in wanted if shutil.which(name, path=search_path) is None]
    if not lacking:
        return ()
    installed = _installed(dpkg, apk)
    return tuple(name for name in lacking if name.partition(":")[0] not in installed)


def _installed(dpkg: Path, apk: Path) -> frozenset[str]:
    """Return the names of installed packages; empty where the package manager is another one."""
    found = set()
    if dpkg.is_dir():
        files = os.listdir(dpkg)
        found |= {file[:-5].partition(":")[0] for file in files if file.endswith(".list")}
    if apk.is_file():
        with apk.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST)
        found |= {line[2:] for line in text.splitlines() if line.startswith("P:")}
    return frozenset(found)
