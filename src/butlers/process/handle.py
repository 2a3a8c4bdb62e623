"""What holds a process so that nothing it started outlives us, also when we are killed: see ``reaper``."""

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


class Leash:
    """Its other end is the reaper's. Let go of, by choice or because we are gone, all of it is ended."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self._ours, self._theirs = ours, theirs

    @property
    def argv(self) -> tuple[str, ...]:
        """The reaper, to be started in a group of its own, without an environment and with ``fds``."""
        return (*_PYTHON, _program(), str(self._theirs.fileno()))

    @property
    def fds(self) -> tuple[int, ...]:
        return (self._theirs.fileno(),)

    def started(self) -> None:
        self._theirs.close()  # so that only the reaper has it

    async def order(self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path) -> None:
        """Tell it what to start."""
        told = reaper.order(argv, env, str(cwd))
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._ours, told)

    def refusal(self) -> str:
        """Why the program could not be started at all; empty when it was."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            return self._ours.recv(1 << 12).decode("utf-8", "replace")
        return ""

    def let_go(self) -> None:
        with contextlib.suppress(OSError):  # it may be closed already, which says the same
            self._ours.shutdown(socket.SHUT_WR)


@contextmanager
def leash() -> Iterator[Leash]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield Leash(ours, theirs)


def by_stdin(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command that runs this one, held by the pipe of its stdin: who starts it for us passes no other."""
    return (*_PYTHON, _program(), reaper.BY_STDIN, *argv)


_PYTHON = (sys.executable, "-I", "-S")


def _program() -> str:
    """As bytecode where there is some: a script would be compiled again for each process."""
    compiled = cache_from_source(reaper.__file__)
    return compiled if Path(compiled).exists() else reaper.__file__
