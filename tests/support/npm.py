"""The npm programs that tests run, pinned: a set is installed once per machine, outside the checkout.

    tests/npm/<set>/package.json         what is wanted, and where in it each program lies
    tests/npm/<set>/package-lock.json    every version with its hash, and no address of a registry

``python -m support.npm`` installs all sets, so that the tests themselves need no network. Install scripts
do not run: what they would link is linked here, and the programs are the native ones where there are any.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SETS = Path(__file__).resolve().parents[1] / "npm"
WANTED, LOCK = "package.json", "package-lock.json"
# A person's own settings may say otherwise: the binaries are optional packages, one per platform, and some
# packages name a newer Node than the one that installs them.
INSTALL = ["npm", "ci", "--ignore-scripts", "--include=optional", "--no-engine-strict"]
SKIP = "BUTLERS_SKIP_NPM"
NO_NPM = f"npm is not installed, and the programs of this test come from it; {SKIP}=1 skips it"


@dataclass(frozen=True)
class NpmSet:
    """Programs that belong together, and the folder that holds them once they are installed."""

    source: Path
    cache: Path

    @property
    def folder(self) -> Path:
        """Another lock, another wish or another kind of machine is another folder."""
        digest = hashlib.sha256(f"{sys.platform} {platform.machine()}".encode())
        for name in (WANTED, LOCK):
            digest.update((self.source / name).read_bytes())
        return self.cache / f"{self.source.name}-{digest.hexdigest()[:16]}"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    def install(self) -> None:
        """Whole or not at all, and by one process; the others wait for it."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with open(self.folder.with_suffix(".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.folder.exists():
                partial = self.folder.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)  # what a killed one left
                self._fill(partial)
                partial.rename(self.folder)

    def _fill(self, folder: Path) -> None:
        folder.mkdir()
        for name in (WANTED, LOCK):
            shutil.copy(self.source / name, folder)
        print(f"installing the npm programs of the tests: {self.source.name}", file=sys.stderr)
        subprocess.run([*INSTALL, "--no-audit", "--no-fund"], cwd=folder, check=True, stdout=2)
        (folder / "bin").mkdir()
        wanted: dict[str, str] = json.loads((folder / WANTED).read_text())["programs"]
        for program, place in wanted.items():
            found = list((folder / "node_modules").glob(place))
            if len(found) != 1:
                raise LookupError(f"{program}: {len(found)} files at {place} on this platform")
            found[0].chmod(0o755)
            (folder / "bin" / program).symlink_to(os.path.relpath(found[0], folder / "bin"))


def named(name: str) -> NpmSet:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return NpmSet(SETS / name, Path(home) / "butlers-tests" / "npm")


def installed(name: str) -> Path:
    """The folder of the set's programs. Without npm the test fails, unless the person said to skip it."""
    if shutil.which("npm") is None:
        refuse = pytest.skip if os.environ.get(SKIP) == "1" else pytest.fail
        refuse(NO_NPM)
    chosen = named(name)
    chosen.install()
    return chosen.programs


def main() -> None:
    if shutil.which("npm") is None:
        skipped = os.environ.get(SKIP) == "1"
        what = "are skipped" if skipped else f"fail; {SKIP}=1 skips them"
        print(f"npm is not installed: the tests of its programs {what}", file=sys.stderr)
        return
    for wanted in sorted(SETS.glob(f"*/{WANTED}")):
        named(wanted.parent.name).install()


if __name__ == "__main__":
    main()
