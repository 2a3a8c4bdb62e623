"""The server process: which one it is, whether it lives, and what it says of itself."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SOCKET_NAME = ".s.PGSQL.5432"
_SOCKET_LINE, _STATE_LINE = 4, 7


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A living server of our data folder."""

    pid: int
    socket_dir: Path | None
    state: str

    @property
    def reachable(self) -> bool:
        # The socket can vanish under a living server: a logout empties XDG_RUNTIME_DIR.
        return self.socket_dir is not None and (self.socket_dir / SOCKET_NAME).exists()

    @property
    def ready(self) -> bool:
        return self.state == "ready" and self.reachable


def find_postmaster(data: Path) -> Postmaster | None:
    """The living server of this data folder, if there is one; a left-over pid file is none."""
    pid = written_pid(data)
    if pid is None or not serves(pid, data):
        return None
    lines = _pid_file_lines(data) + [""] * (_STATE_LINE + 1)
    socket_dir = lines[_SOCKET_LINE]
    return Postmaster(pid, Path(socket_dir) if socket_dir else None, lines[_STATE_LINE].strip())


def written_pid(data: Path) -> int | None:
    """What the pid file says, true or not."""
    first = next(iter(_pid_file_lines(data)), "")
    return int(first) if first.isdigit() and int(first) > 1 else None


def serves(pid: int, data: Path) -> bool:
    """Whether a living process serves this data folder, and is no later owner of the number.

    Every server process works in its data folder. Where we may not see that, it is none of ours:
    a server runs as the owner of its data, which is this user, and root sees everything.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
            return False
        return Path(process.cwd()) == data
    except psutil.Error:
        return False


def remnants(data: Path) -> list[psutil.Process]:
    """The processes that still serve this data folder, with a living postmaster or without."""
    return [process for process in psutil.process_iter() if serves(process.pid, data)]


def reap(pid: int) -> None:
    """Collect a dead postmaster that became our child, as it does when we are process 1."""
    with suppress(psutil.Error, ChildProcessError):
        if psutil.Process(pid).name().startswith("postgres"):
            os.waitpid(pid, os.WNOHANG)


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []
