"""Our end of the connection to a reaper, which ends its process when we are gone (see ``reaper``)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path

from butlers.process import reaper


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

    async def send_command(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> None:
        """Send the reaper the command that it is to start."""
        message = reaper.encode_command(argv, env, str(cwd))
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._ours, message)

    def start_error(self) -> str:
        """Return why the program could not be started; empty if it was."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            return self._ours.recv(1 << 12).decode("utf-8", "replace")
        return ""

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


def held_by_stdin(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that runs this one and ends it when the writer of its stdin is gone.

    For a program that a library starts, which passes no other descriptor.
    """
    return (*_PYTHON, _program(), reaper.BY_STDIN, *argv)


_PYTHON = (sys.executable, "-I", "-S")


def _program() -> str:
    """Return the compiled reaper if there is one: a script would be compiled again for each process."""
    compiled = cache_from_source(reaper.__file__)
    return compiled if Path(compiled).exists() else reaper.__file__
