"""A session's private folder: its own, closed to others, gone at its end and after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from butlers.domain.clock import uuid7
from butlers.sessions.workspace import Workspaces
from support.fleet import wait_for


def taken(home: Path) -> Workspaces:
    workspaces = Workspaces(home, "health", home / "roster" / "health")
    workspaces.take()
    return workspaces


def test_workspace_is_private_and_removed_afterwards(tmp_path: Path) -> None:
    workspaces = taken(tmp_path)
    with workspaces.open(uuid7()) as workspace:
        assert workspace.cwd == tmp_path / "roster" / "health"
        assert workspace.private.stat().st_mode & 0o777 == 0o700
        workspace.home.mkdir()
        (workspace.home / "left").write_text("x")
    assert not workspace.private.exists()
    workspaces.release()
    assert list((tmp_path / "sessions" / "health").iterdir()) == []


def test_workspace_is_removed_in_a_thread(tmp_path: Path) -> None:
    workspaces = taken(tmp_path)
    with workspaces.open(uuid7()) as workspace:
        (workspace.private / "left").write_text("x")
    workspaces._remover.submit(int).result()  # whatever was to be removed before is removed
    assert list(workspace.private.parent.iterdir()) == []
    workspaces.release()


def test_folders_and_processes_of_a_killed_daemon_are_removed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from butlers.domain.clock import uuid7\n"
        "from butlers.sessions.workspace import Workspaces\n"
        "w = Workspaces(Path(sys.argv[1]), 'health', Path('/')); w.take()\n"
        "opened = w.open(uuid7()); print(opened.__enter__().private, flush=True)\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    dead = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False
    )
    private = Path(dead.stdout.strip())
    assert private.is_dir()
    orphan = subprocess.Popen(["sleep", "3600"], env={"HOME": f"{private}/home"})
    stranger = subprocess.Popen(["sleep", "3600"], env={"HOME": str(tmp_path)})
    # Popen returns before the kernel shows the environment of the new program.
    wait_for("its environment", Path(f"/proc/{orphan.pid}/environ").read_bytes)
    try:
        workspaces = taken(tmp_path)
        assert not private.exists()
        assert orphan.wait(60) == -9
        assert stranger.poll() is None
        workspaces.release()
    finally:
        for process in (orphan, stranger):
            process.kill()
            process.wait()


def test_folders_of_a_running_daemon_are_kept(tmp_path: Path) -> None:
    first = taken(tmp_path)
    with first.open(uuid7()) as workspace:
        second = taken(tmp_path)
        assert workspace.private.is_dir()
        second.release()
    first.release()


def test_folder_removed_during_registration_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "health" / "old").mkdir(parents=True)
    taken(tmp_path).release()
    assert os.listdir(tmp_path / "sessions" / "health") == []
