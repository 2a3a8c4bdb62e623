"""The reaper: the parent of what we run, a session's CLI or a skill's script, so that nothing outlives it.

The CLIs run their shell commands in sessions of their own, so that ending a process group does not reach
them, and a daemon that is killed with SIGKILL reaches nothing at all. So each is started by a small process
that every descendant falls back to, however it was detached, and that is held by a leash: a socket whose
other end only the daemon has. When the one that it started leaves, or the leash is let go (by choice, or
because the daemon is gone), the reaper ends all that is left below it, and then itself, as its child did.

Where others start it for us and pass no socket, its stdin is the leash: that belongs to its child, so nothing
is read from it, and that its writer is gone is seen all the same. The child then has a moment to leave.

This file is run as a program, with the standard library alone, and of that only what is imported at once:
every session waits for it. ``leash`` is the other side.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import sys

TYPE_CHECKING = False  # the module that has it takes long to import
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Mapping
else:
    import _signal as signal  # the public one makes enumerations of all its numbers first

PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127
PROC = "/proc"
SIZE = 8  # bytes that say how many follow
BY_STDIN = "-"  # in the place of the leash's number
FAREWELL_MS = 2_000


def main() -> None:
    if sys.argv[1] == BY_STDIN:
        leash = os.dup(0)
        argv, env, cwd = tuple(sys.argv[2:]), None, os.getcwd()
        events, farewell_ms = 0, FAREWELL_MS  # that it has ended is told unasked
    else:
        leash = int(sys.argv[1])
        os.set_inheritable(leash, False)
        argv, env, cwd = _receive(leash)
        events, farewell_ms = select.POLLIN, 0
    _adopt()
    woken = _wake_on_signals()
    child = _start(argv, env, cwd, leash)
    _let_go_of_streams()
    status = _watch(child, leash, woken, events, farewell_ms)
    if os.path.isdir(PROC):
        _end_all()
    elif status is None:  # the daemon may be gone: the group is all that can be reached here
        os.killpg(0, signal.SIGKILL)
    _leave(status)


def order(argv: Iterable[str], env: Mapping[str, str], cwd: str) -> bytes:
    """What to start, as it is told to a reaper. Plain texts only: a secret may be of a type of its own."""
    plain = {str(name): str(value) for name, value in env.items()}
    told = marshal.dumps((tuple(map(str, argv)), plain, cwd))
    return len(told).to_bytes(SIZE) + told


def _receive(leash: int) -> tuple[tuple[str, ...], dict[str, str], str]:
    argv, env, cwd = marshal.loads(_read(leash, int.from_bytes(_read(leash, SIZE))))
    return argv, env, cwd


def _read(leash: int, size: int) -> bytes:
    """No more comes when the daemon is gone before it could say all."""
    told = b""
    while len(told) < size:
        if not (part := os.read(leash, size - len(told))):
            sys.exit(0)
        told += part
    return told


def _adopt() -> None:
    """Be the one that descendants fall back to. Elsewhere than on Linux the process group must do."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _wake_on_signals() -> int:
    """A descriptor that is readable when a child has ended.

    SIGTERM is for the child, which shares the group; its handler is dropped when the child is started,
    which an ignored signal would not be.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reading


def _start(argv: tuple[str, ...], env: dict[str, str] | None, cwd: str, leash: int) -> int:
    """Without an environment of its own it has ours."""
    if child := os.fork():
        return child
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a program should not
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        if env is None:
            os.execvp(argv[0], argv)
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        said = f"{argv[0]} could not be started: {error}".encode("utf-8", "replace")
        os.write(2 if sys.argv[1] == BY_STDIN else leash, said)
    finally:
        os._exit(NOT_STARTED)


def _let_go_of_streams() -> None:
    """They are the child's: their end must be seen when it closes them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)


def _watch(child: int, leash: int, woken: int, events: int, farewell_ms: int) -> int | None:
    """The wait status of the child, or None when the leash was let go first and it has not left since."""
    poll = select.poll()
    poll.register(leash, events)
    poll.register(woken, select.POLLIN)
    patience_ms = None
    while ready := {number for number, _ in poll.poll(patience_ms)}:
        if woken in ready:
            _forget(woken)
            if (status := _collect(child)) is not None:
                return status
        if leash in ready:
            poll.unregister(leash)
            patience_ms = farewell_ms
    return None


def _forget(woken: int) -> None:
    try:
        os.read(woken, 1 << 10)
    except BlockingIOError:
        return


def _collect(child: int) -> int | None:
    """Bury all that have ended; the status of the one that matters, if it is among them."""
    try:
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == child:
                return status
            if ended == 0:
                return None
    except ChildProcessError:
        return None


def _end_all() -> None:
    """End what is left until nothing is: those that were a step away fall back to us in the next round."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:  # most leave nobody behind, and nobody is looked for
                continue
            for process in _descendants():
                _kill(process)
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _descendants() -> set[int]:
    parents = {int(name): _parent(name) for name in os.listdir(PROC) if name.isdigit()}
    found = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def _parent(process: str) -> int | None:
    try:
        with open(f"{PROC}/{process}/stat", "rb") as file:
            stat = file.read()
    except OSError:
        return None
    return int(stat.rpartition(b")")[2].split()[1])  # the name before may hold anything


def _leave(status: int | None) -> None:
    """As the child did, signal for signal."""
    number = signal.SIGKILL if status is None else os.WTERMSIG(status)
    if status is not None and os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:  # it has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
