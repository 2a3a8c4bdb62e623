"""The reaper: the parent of a session's process, which sees to it that nothing outlives the session.

The CLIs run their shell commands in sessions of their own, so that ending a process group does not reach
them, and a daemon that is killed with SIGKILL reaches nothing at all. So each session is started by a small
process that every descendant falls back to, however it was detached, and that is held by a leash: a socket
whose other end only the daemon has. When the session's process leaves, or the leash is let go (by choice, or
because the daemon is gone), the reaper ends all that is left below it, and then itself, as its child did.

This file is run as a program by ``process.run``, with the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127
PROC = Path("/proc")


def main() -> None:
    leash = int(sys.argv[1])
    os.set_inheritable(leash, False)
    order = _receive(leash)
    _adopt()
    woken = _wake_on_signals()
    child = _start(order, leash)
    _let_go_of_streams()
    status = _watch(child, leash, woken)
    if PROC.is_dir():
        _end_all()
    elif status is None:  # the daemon may be gone: the group is all that can be reached here
        os.killpg(0, signal.SIGKILL)
    _leave(status)


def _receive(leash: int) -> dict[str, object]:
    """What to start: one line of JSON. None comes when the daemon is gone before it could say."""
    line = b""
    while not line.endswith(b"\n"):
        if not (part := os.read(leash, 1 << 16)):
            sys.exit(0)
        line += part
    order: dict[str, object] = json.loads(line)
    return order


def _adopt() -> None:
    """Be the one that descendants fall back to. Elsewhere than on Linux the process group must do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wake_on_signals() -> int:
    """A descriptor that is readable when a child has ended.

    SIGTERM is for the session, which shares the group; its handler is dropped when the child is started,
    which an ignored signal would not be.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reading


def _start(order: dict[str, object], leash: int) -> int:
    argv, env, cwd = order["argv"], order["env"], order["cwd"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    assert isinstance(cwd, str)
    if child := os.fork():
        return child
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a program should not
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        os.write(leash, f"{argv[0]} could not be started: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(NOT_STARTED)


def _let_go_of_streams() -> None:
    """They are the session's: their end must be seen when it closes them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)


def _watch(child: int, leash: int, woken: int) -> int | None:
    """The wait status of the session's process, or None when the leash was let go first."""
    poll = select.poll()
    poll.register(leash, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = {number for number, _ in poll.poll()}
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 1 << 10)
            if (status := _collect(child)) is not None:
                return status
        if leash in ready:
            return None


def _collect(child: int) -> int | None:
    """Bury all that have ended; the status of the one that matters, if it is among them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == child:
                return status
            if ended == 0:
                break
    return None


def _end_all() -> None:
    """End what is left until nothing is: those that were a step away fall back to us in the next round."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for process in _descendants():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            os.waitpid(-1, 0)


def _descendants() -> set[int]:
    parents = {int(entry.name): _parent(entry) for entry in PROC.iterdir() if entry.name.isdigit()}
    found = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _parent(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_bytes()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[1])  # the name before may hold anything


def _leave(status: int | None) -> None:
    """As the session's process did, signal for signal."""
    number = signal.SIGKILL if status is None else os.WTERMSIG(status)
    if status is not None and os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
