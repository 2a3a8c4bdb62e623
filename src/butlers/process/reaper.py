"""The reaper: parent of a session's CLI or a skill's script, which leaves none of their descendants behind.

The CLIs run their shell commands in sessions of their own, so killing a process group does not reach them,
and a daemon that is killed with SIGKILL reaches nothing. So each program is started by a small process that
adopts every orphaned descendant and watches a control socket, whose other end only the daemon has. When the
program exits, or the daemon closes the socket or is gone, the reaper kills what is left below it and then
exits as its child did.

Where a library starts the reaper and passes no socket, stdin takes the socket's place. It belongs to the
child, so nothing is read from it, but the end of its writer is noticed. The child then has a moment to exit.

A program with a sandbox is started by ``namespaces``, and its connections go through ``relay``.

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
    from typing import Any

    from butlers.process.namespaces import Launch
    from butlers.process.relay import Relay
else:
    import _signal as signal  # the public one makes enumerations of all its numbers first

PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127
PROC = "/proc"
SIZE = 8  # bytes of the length before a message
PORT_SIZE = 2
OPENED = b"\x06"  # answer to a port that was opened
BY_STDIN = "-"  # in place of the control socket's number
EXIT_MS = 2_000


def main() -> None:
    if sys.argv[1] == BY_STDIN:
        control = os.dup(0)
        plan = marshal.loads(bytes.fromhex(sys.argv[2]))
        argv, env, cwd = tuple(sys.argv[4:]), None, sys.argv[3] or os.getcwd()
        report, events, exit_ms = 2, 0, EXIT_MS  # a hang-up is reported without being asked for
    else:
        control = int(sys.argv[1])
        os.set_inheritable(control, False)
        argv, env, cwd, plan = _receive(control)
        report, events, exit_ms = control, select.POLLIN, 0
    _adopt()
    woken = _wake_on_signals()
    poll = select.poll()
    launched = None
    if plan is None:
        child = _start(argv, env, cwd, report)
    else:
        launched = _start_in_sandbox(plan, argv, env, cwd, report)
        if launched is None:
            os._exit(NOT_STARTED)
        child = launched.child
    _release_streams()
    status = _watch(child, control, woken, events, exit_ms, poll, Ports(launched, poll))
    if status is not None and launched is not None:
        status = launched.exit_status(status)
    if os.path.isdir(PROC):
        _end_all()
    elif status is None:  # without /proc only the group can be reached
        os.killpg(0, signal.SIGKILL)
    _exit_as_child(status)


def _start_in_sandbox(
    plan: Any, argv: tuple[str, ...], env: dict[str, str] | None, cwd: str, report: int
) -> Launch | None:
    """Start the child with the files beside this one, which most programs do not need."""
    sys.path.insert(0, os.path.dirname(plan["code"]))
    from namespaces import launch  # type: ignore[import-not-found]

    launched: Launch | None = launch(plan, argv, env, cwd, report)
    return launched


class Ports:
    """The relay of a sandbox, which is loaded when there is a port to relay."""

    def __init__(self, launched: Launch | None, poll: Any) -> None:
        self._launched, self._poll = launched, poll
        self._relay: Relay | None = None
        if launched is not None and launched.listeners:
            self._load()

    def open(self, port: int) -> None:
        if self._launched is not None:
            (self._relay or self._load()).open_port(port)

    def handle(self, ready: dict[int, int]) -> None:
        for number, happened in ready.items():
            if self._relay is not None:
                self._relay.handle(number, happened)

    def _load(self) -> Relay:
        from relay import Relay as LoopbackRelay  # type: ignore[import-not-found]

        assert self._launched is not None
        relay: Relay = LoopbackRelay(self._launched.listeners, self._launched.listen, self._poll)
        self._relay = relay
        return relay


def encode_command(
    argv: Iterable[str], env: Mapping[str, str], cwd: str, plan: dict[str, Any] | None = None
) -> bytes:
    """Return the message that tells a reaper what to start, and in which sandbox."""
    # marshal knows no subclasses of str, and a secret may be one.
    plain = {str(name): str(value) for name, value in env.items()}
    message = marshal.dumps((tuple(map(str, argv)), plain, cwd, plan))
    return len(message).to_bytes(SIZE) + message


def encode_port(port: int) -> bytes:
    """Return the message that opens a port of the sandbox."""
    return port.to_bytes(PORT_SIZE)


def _receive(control: int) -> tuple[tuple[str, ...], dict[str, str], str, Any]:
    argv, env, cwd, plan = marshal.loads(_read(control, int.from_bytes(_read(control, SIZE))))
    return argv, env, cwd, plan


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


def _start(argv: tuple[str, ...], env: dict[str, str] | None, cwd: str, report: int) -> int:
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
        os.write(report, message)
    finally:
        os._exit(NOT_STARTED)


def _release_streams() -> None:
    """Close the reaper's copies, so that readers see the end when the child closes its own."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)


def _watch(
    child: int, control: int, woken: int, events: int, exit_ms: int, poll: Any, ports: Ports
) -> int | None:
    """Return the child's wait status; None if the control socket closed first and it did not exit in time."""
    poll.register(control, events)
    poll.register(woken, select.POLLIN)
    timeout_ms = None
    while ready := dict(poll.poll(timeout_ms)):
        if ready.pop(woken, None):
            _clear(woken)
            if (status := _collect(child)) is not None:
                return status
        if ready.pop(control, None) and not (events and _opened_port(control, ports)):
            poll.unregister(control)
            timeout_ms = exit_ms
        ports.handle(ready)
    return None


def _opened_port(control: int, ports: Ports) -> bool:
    """Open the port that the daemon names; return False if the daemon closed the socket."""
    message = os.read(control, PORT_SIZE)
    if len(message) != PORT_SIZE:
        return False
    ports.open(int.from_bytes(message))
    os.write(control, OPENED)
    return True


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
