"""Apply each mutation of ``tests/mutants.toml`` to a copy of the project, and demand that its test fails.

    python scripts/run_mutants.py [NAME ...] [--list]

A mutation that its test does not notice is a promise that nobody checks. The working tree is not touched.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "mutants.toml"
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "node_modules"
)
TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one line, and the test that notices it."""

    name: str
    file: str
    old: str
    new: str
    test: str

    def apply(self, root: Path) -> str:
        """Write the mutated file and return its original text."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.name}: its old text occurs {text.count(self.old)} times")
        path.write_text(text.replace(self.old, self.new))
        return text


def load_mutants() -> list[Mutant]:
    return [Mutant(**entry) for entry in tomllib.loads(DATA.read_text())["mutant"]]


def run_test(root: Path, test: str) -> tuple[bool, str]:
    """Return whether the test passes in that copy, and the end of what it printed."""
    path = os.pathsep.join(str(root / name) for name in ("src", "tests"))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        test,
    ]
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environ,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, "it took too long"
    return done.returncode == 0, done.stdout[-400:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="mutations to run; all, if none is named")
    parser.add_argument("--list", action="store_true", help="list the mutations and stop")
    arguments = parser.parse_args()
    chosen = [one for one in load_mutants() if not arguments.names or one.name in arguments.names]
    if arguments.list:
        _say(*(f"{one.name}: {one.test}" for one in chosen))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="bm-"))
    try:
        return run_all(chosen, folder / "project")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_all(chosen: list[Mutant], copy: Path) -> int:
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
    failed = []
    for test in sorted({one.test for one in chosen}):
        passes, output = run_test(copy, test)
        if not passes:
            failed.append(f"{test} fails without a mutation:\n{output}")
    for one in chosen if not failed else ():
        original = one.apply(copy)
        survived, _output = run_test(copy, one.test)
        (copy / one.file).write_text(original)
        _say(f"{'SURVIVED' if survived else 'caught':10}{one.name}")
        if survived:
            failed.append(f"{one.name} survived {one.test}")
    _say(f"{len(chosen)} mutations, {len(failed)} problems", *failed)
    return 1 if failed else 0


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
