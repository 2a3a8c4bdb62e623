"""The process of a script: heard within bounds, and ended with everything that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from butlers.process.handle import Leash, leash

_STDERR = 2
_GRACE_S = 0.5  # between being asked to end and being ended
_REAPING_S = 5.0  # what ending all that it started may take
_LAST_WORDS_S = 1.0  # what somebody who left the group may hold our pipes for


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path
    stdin: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """``output`` and ``errors`` in bytes: of stdout there may be so much, of stderr the end is kept."""

    seconds: float = 60.0
    output: int = 1024 * 1024
    errors: int = 64 * 1024


class End(StrEnum):
    LEFT = "left"  # by itself
    TOOK_TOO_LONG = "took-too-long"
    SAID_TOO_MUCH = "said-too-much"


@dataclass(frozen=True, slots=True)
class Ended:
    why: End
    code: int
    stdout: bytes
    stderr: bytes


class _Listening(asyncio.SubprocessProtocol):
    """Keeps the beginning of stdout and the end of stderr.

    A process has left when it is gone; whoever else holds its pipes may go on for a while.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.stdout, self.stderr = bytearray(), bytearray()
        self.left, self.full, self.closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self.stderr += data
            del self.stderr[: -self.limits.errors]
            return
        room = self.limits.output - len(self.stdout)
        self.stdout += data[:room]
        if len(data) > room:
            self.full.set()

    def process_exited(self) -> None:
        self.left.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def run(command: Command, limits: Limits) -> Ended:
    """Run it to its end. On the time limit, too much output and cancellation its group is ended.

    OSError when it can not be started at all.
    """
    with leash() as held:
        transport, heard = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Listening(limits),
            *held.argv,
            env={},
            pass_fds=held.fds,
            start_new_session=True,
        )
        held.started()
        try:
            _feed(transport, command.stdin)
            await held.order(command.argv, command.env, command.cwd)
            why = await _until_over(heard, limits.seconds)
        finally:
            await asyncio.shield(asyncio.create_task(_end(transport, heard, held)))
        if refusal := held.refusal():
            raise FileNotFoundError(refusal)
    code = transport.get_returncode()
    assert code is not None
    if heard.full.is_set() and why is End.LEFT:  # its last words were the ones too many
        why = End.SAID_TOO_MUCH
    return Ended(why, code, bytes(heard.stdout), bytes(heard.stderr))


def _feed(transport: asyncio.SubprocessTransport, content: bytes) -> None:
    stdin = transport.get_pipe_transport(0)
    assert isinstance(stdin, asyncio.WriteTransport)
    stdin.write(content)  # it need not read it
    stdin.close()


async def _until_over(heard: _Listening, seconds: float) -> End:
    over = [asyncio.create_task(event.wait()) for event in (heard.left, heard.full)]
    try:
        await asyncio.wait(over, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in over:
            waiting.cancel()
    if heard.left.is_set():
        return End.LEFT
    return End.SAID_TOO_MUCH if heard.full.is_set() else End.TOOK_TOO_LONG


async def _end(transport: asyncio.SubprocessTransport, heard: _Listening, held: Leash) -> None:
    """Asked first, then made to; also what it left running behind itself."""
    if not heard.left.is_set():
        _signal(transport.get_pid(), signal.SIGTERM)
        await _within(_GRACE_S, heard.left)
    held.let_go()  # the reaper ends what is left
    await _within(_REAPING_S, heard.left)
    _signal(
        transport.get_pid(), signal.SIGKILL
    )  # where there is no reaping, the group is all there is
    await heard.left.wait()
    await _within(_LAST_WORDS_S, heard.closed)
    transport.close()


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
