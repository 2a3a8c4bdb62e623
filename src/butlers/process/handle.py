"""Our end of the connection to a reaper, which ends its process when we are gone (see ``reaper``)."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

from butlers.process import reaper
from butlers.process.sandbox import Sandbox


class ProcessHandle:
    """A socket pair. When our end is released or closed, the reaper ends everything it started."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self._ours, self._theirs = ours, theirs

    @property
    def argv(self) -> tuple[str, ...]:
        """Command line of the reaper. Start it in a group of its own, with ``fds`` and no environment."""
        return (*_PYTHON, _program(), str(self._theirs.fileno()))

    @property
    def fds(self) -> tuple[int, ...]:
        return (self._theirs.fileno(),)

    def started(self) -> None:
        """Close our copy of the reaper's end."""
        self._theirs.close()

    async def send_command(
        self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, sandbox: Sandbox | None
    ) -> None:
        """Send the reaper the command that it is to start."""
        plan = None if sandbox is None else sandbox.plan()
        message = reaper.encode_command(argv, env, str(cwd), plan)
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._ours, message)

    def start_error(self) -> str:
        """Return why the program could not be started; empty if it was."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            return self._ours.recv(1 << 12).decode("utf-8", "replace")
        return ""

    async def open_port(self, port: int) -> None:
        """Let the process reach this port of the machine, too. Return when it can."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(self._ours, reaper.encode_port(port))
            await loop.sock_recv(self._ours, 1)

    def release(self) -> None:
        """Have the reaper end everything it started."""
        with contextlib.suppress(OSError):  # a closed socket has the same effect
            self._ours.shutdown(socket.SHUT_WR)


@contextmanager
def open_handle() -> Iterator[ProcessHandle]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ProcessHandle(ours, theirs)


def held_by_stdin(
    argv: tuple[str, ...], sandbox: Sandbox | None = None, cwd: Path | None = None
) -> tuple[str, ...]:
    """Return a command that runs this one and ends it when the writer of its stdin is gone.

    For a program that a library starts, which passes no other descriptor. ``cwd`` is the working folder in
    the sandbox; by default the same as outside.
    """
    plan = marshal.dumps(None if sandbox is None else sandbox.plan())
    place = "" if sandbox is None or cwd is None else str(cwd)
    return (*_PYTHON, _program(), reaper.BY_STDIN, plan.hex(), place, *argv)


_PYTHON = (sys.executable, "-I", "-S")


def _program() -> str:
    """Return the compiled reaper if it is current: a script would be compiled again for each process."""
    source = Path(reaper.__file__)
    compiled = Path(cache_from_source(reaper.__file__))
    current = compiled.exists() and compiled.stat().st_mtime >= source.stat().st_mtime
    return str(compiled if current else source)
