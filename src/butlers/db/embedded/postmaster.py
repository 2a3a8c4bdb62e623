"""The server process of a data folder: its state, its socket folder and its locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from butlers.domain.errors import DatabaseUnavailable

SOCKET_NAME = ".s.PGSQL.5432"
_SOCKET_LINE, _STATE_LINE = 4, 7


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The running server of a data folder."""

    pid: int
    socket_dir: Path | None
    state: str

    @property
    def reachable(self) -> bool:
        # The socket of a running server can vanish: a logout empties XDG_RUNTIME_DIR.
        return self.socket_dir is not None and (self.socket_dir / SOCKET_NAME).exists()

    @property
    def ready(self) -> bool:
        return self.state == "ready" and self.reachable


def find_postmaster(data: Path) -> Postmaster | None:
    """Return the running server of this data folder, or None. A stale pid file is ignored."""
    pid = written_pid(data)
    if pid is None or not serves(pid, data):
        return None
    lines = _pid_file_lines(data) + [""] * (_STATE_LINE + 1)
    socket_dir = lines[_SOCKET_LINE]
    return Postmaster(pid, Path(socket_dir) if socket_dir else None, lines[_STATE_LINE].strip())


def written_pid(data: Path) -> int | None:
    """Return the process id in the pid file, which may be stale."""
    first = next(iter(_pid_file_lines(data)), "")
    return int(first) if first.isdigit() and int(first) > 1 else None


def serves(pid: int, data: Path) -> bool:
    """Return whether the process is a server of this data folder, and not a later user of the same id.

    A server process works in its data folder. A process whose folder we may not read is not ours: the
    server runs as the owner of its data, which is this user, and root can read everything.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
            return False
        return Path(process.cwd()) == data
    except psutil.Error:
        return False


def remnants(data: Path) -> list[psutil.Process]:
    """Return the processes that serve this data folder, with or without a postmaster."""
    return [process for process in psutil.process_iter() if serves(process.pid, data)]


def reap(pid: int) -> None:
    """Reap a dead postmaster that became our child, which happens if we are process 1."""
    with suppress(psutil.Error, ChildProcessError):
        if psutil.Process(pid).name().startswith("postgres"):
            os.waitpid(pid, os.WNOHANG)


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


# -- the socket folder ---------------------------------------------------------------------------


# The kernel allows 107 bytes on Linux and 103 on macOS.
_LONGEST = 100


def choose_socket_dir(root: Path, runtime_dir: Path | None, temp_dir: Path) -> Path:
    """Return the socket folder: near the data, or a short private path. Equal for all processes of a home."""
    near = root / "run"
    if _fits(near):
        return near
    name = f"butlers-{os.geteuid()}-{hashlib.sha256(bytes(root)).hexdigest()[:12]}"
    if runtime_dir is not None and _belongs_to_this_user(runtime_dir) and _fits(runtime_dir / name):
        return runtime_dir / name
    return temp_dir / name


def make_private(folder: Path, also_allowed: int | None = None) -> None:
    """Create the folder, or raise if it belongs to another user: the temp folder is public."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        owners = {os.geteuid(), also_allowed}
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            raise DatabaseUnavailable(
                f"{folder} belongs to another user, so it cannot hold the database's socket",
                hint=f"remove {folder}, or move Butlers' home to a shorter path",
            ) from None
    folder.chmod(0o700)


def _fits(folder: Path) -> bool:
    # A comma separates hosts in a connection URL, whatever the quoting.
    return len(bytes(folder / SOCKET_NAME)) <= _LONGEST and b"," not in bytes(folder)


def _belongs_to_this_user(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


# -- locks ---------------------------------------------------------------------------------------


def open_lock(path: Path) -> int:
    """Open a lock file. The kernel drops its lock when the holder dies. Children do not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_exclusive(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ServerLease:
    """A shared lock on the server: while a process holds one, the server keeps running."""

    def __init__(self, path: Path) -> None:
        self._descriptor = open_lock(path)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def end(self) -> bool:
        """Release the lease and return whether it was the last. The caller must hold the start lock."""
        try:
            return try_exclusive(self._descriptor)
        finally:
            os.close(self._descriptor)
