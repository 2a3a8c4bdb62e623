"""Home of an evaluation: deleted afterwards, or at the next start after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from butlers.prompt.adapters.home import open_home
from butlers.skills.install.mount import CLAUDE_FOLDER

KILLED = """
import os
from butlers.prompt.adapters.home import open_home
from butlers.skills.install.mount import CLAUDE_FOLDER
opened = open_home(CLAUDE_FOLDER, None)
print(opened.__enter__().workspace.private, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left_by_a_kill() -> Path:
    dead = subprocess.run(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, check=False
    )
    private = Path(dead.stdout.strip())
    assert private.is_dir()
    return private


def test_home_is_private_and_deleted_afterwards(around: Path) -> None:
    with open_home(CLAUDE_FOLDER, None) as home:
        assert home.workspace.private.parent == around
        assert home.workspace.private.stat().st_mode & 0o777 == 0o700
    assert os.listdir(around) == []


def test_leftovers_of_a_killed_process_are_removed_and_its_children_ended(around: Path) -> None:
    private = left_by_a_kill()
    orphan = subprocess.Popen(["sleep", "3600"], env={"HOME": f"{private}/home"})
    try:
        with open_home(CLAUDE_FOLDER, None) as home:
            assert os.listdir(around) == [home.workspace.private.name]
        assert orphan.wait(60) == -9
    finally:
        orphan.kill()
        orphan.wait()


def test_home_in_use_is_not_removed(around: Path) -> None:
    with (
        open_home(CLAUDE_FOLDER, None) as first,
        open_home(CLAUDE_FOLDER, None) as second,
    ):
        assert first.workspace.private.is_dir()
        assert second.workspace.private.is_dir()


def test_folders_of_other_programs_are_not_removed(around: Path) -> None:
    kept = around / "bp-another"
    kept.mkdir()
    (kept / "data").write_text("x")
    private = left_by_a_kill()
    (around / "bp-link").symlink_to(kept)
    with open_home(CLAUDE_FOLDER, None):
        assert (kept / "data").read_text() == "x"
        assert (around / "bp-link").is_symlink()
        assert not private.exists()
