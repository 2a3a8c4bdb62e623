"""Fleets of separate processes, from a home whose database is made once per run."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fleet import Fleet, butlers_environment, command


@pytest.fixture(scope="session")
def template_home(run_id: str) -> Path:
    """A home that has been migrated, made by whichever worker comes first."""
    root = Path(tempfile.gettempdir()) / f"bt-{run_id}"
    root.mkdir(exist_ok=True)
    with open(root / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home = root / "home"
        if not (root / "made").exists():
            subprocess.run(
                command("db", "migrate"),
                env=butlers_environment(home, 0),
                check=True,
                capture_output=True,
            )
            (root / "made").touch()
    return home


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[Fleet]:
    """The four butlers as separate processes, shared by the tests of one file."""
    running = Fleet.copy_of(template_home)
    try:
        running.start_all()
        yield running
    finally:
        running.close()


@pytest.fixture
def empty_home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bh-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
