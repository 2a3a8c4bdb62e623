"""The reaper: parent of a session's CLI or a skill's script, which leaves none of their descendants behind.

The CLIs run their shell commands in sessions of their own, so killing a process group does not reach them,
and a daemon that is killed with SIGKILL reaches nothing. So each program is started by a small process that
adopts every orphaned descendant and watches a control socket, whose other end only the daemon has. When the
program exits, or the daemon closes the socket or is gone, the reaper kills what is left below it and then
exits as its child did.

Where a library starts the reaper and passes no socket, stdin takes the socket's place. It belongs to the
child, so nothing is read from it, but the end of its writer is noticed. The child then has a moment to exit.

This file is run as a program, with the standard library alone, and imports little of that: every session
waits for it. ``handle`` is the daemon's side.
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
SIZE = 8  # bytes of the length before a message
BY_STDIN = "-"  # in place of the control socket's number
EXIT_MS = 2_000


def main() -> None:
    if sys.argv[1] == BY_STDIN:
        control = os.dup(0)
        argv, env, cwd = tuple(sys.argv[2:]), None, os.getcwd()
        events, exit_ms = 0, EXIT_MS  # a hang-up is reported without being asked for
    else:
        control = int(sys.argv[1])
        os.set_inheritable(control, False)
        argv, env, cwd = _receive(control)
        events, exit_ms = select.POLLIN, 0
    _adopt()
    woken = _wake_on_signals()
    child = _start(argv, env, cwd, control)
    _release_streams()
    status = _watch(child, control, woken, events, exit_ms)
    if os.path.isdir(PROC):
        _end_all()
    elif status is None:  # without /proc only the group can be reached
        os.killpg(0, signal.SIGKILL)
    _exit_as_child(status)


def encode_command(argv: Iterable[str], env: Mapping[str, str], cwd: str) -> bytes:
    """Return the message that tells a reaper what to start."""
    # marshal knows no subclasses of str, and a secret may be one.
    plain = {str(name): str(value) for name, value in env.items()}
    message = marshal.dumps((tuple(map(str, argv)), plain, cwd))
    return len(message).to_bytes(SIZE) + message


def _receive(control: int) -> tuple[tuple[str, ...], dict[str, str], str]:
    argv, env, cwd = marshal.loads(_read(control, int.from_bytes(_read(control, SIZE))))
    return argv, env, cwd


def _read(control: int, size: int) -> bytes:
    """Exit if the daemon is gone before it has sent everything."""
    message = b""
    while len(message) < size:
        if not (part := os.read(control, size - len(message))):
            sys.exit(0)
        message += part
    return message


def _adopt() -> None:
    """Become the parent of orphaned descendants. Systems other than Linux have only the process group."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable when a child has ended.

    SIGTERM is for the child, which shares the group. It gets a handler because the child would inherit an
    ignored signal, but not a handler.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reading


def _start(argv: tuple[str, ...], env: dict[str, str] | None, cwd: str, control: int) -> int:
    """Start the child; without ``env`` it inherits the reaper's environment."""
    if child := os.fork():
        return child
    try:
        for number in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores them; the program should not
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        if env is None:
            os.execvp(argv[0], argv)
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        message = f"{argv[0]} could not be started: {error}".encode("utf-8", "replace")
        os.write(2 if sys.argv[1] == BY_STDIN else control, message)
    finally:
        os._exit(NOT_STARTED)


def _release_streams() -> None:
    """Close the reaper's copies, so that readers see the end when the child closes its own."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)


def _watch(child: int, control: int, woken: int, events: int, exit_ms: int) -> int | None:
    """Return the child's wait status; None if the control socket closed first and it did not exit in time."""
    poll = select.poll()
    poll.register(control, events)
    poll.register(woken, select.POLLIN)
    timeout_ms = None
    while ready := {number for number, _ in poll.poll(timeout_ms)}:
        if woken in ready:
            _clear(woken)
            if (status := _collect(child)) is not None:
                return status
        if control in ready:
            poll.unregister(control)
            timeout_ms = exit_ms
    return None


def _clear(woken: int) -> None:
    try:
        os.read(woken, 1 << 10)
    except BlockingIOError:
        return


def _collect(child: int) -> int | None:
    """Wait for all that have ended; return the child's status if it is among them."""
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
    """Kill descendants until there are none: the next round finds those that were adopted since."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[
                0
            ]:  # most programs leave no descendants, so /proc is not read
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
    return int(stat.rpartition(b")")[2].split()[1])  # the name before it may contain anything


def _exit_as_child(status: int | None) -> None:
    """Exit with the child's code, or by the signal that ended it."""
    number = signal.SIGKILL if status is None else os.WTERMSIG(status)
    if status is not None and os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
