"""The process of a session: started with what it is given, listened to, and ended with all it started.

Every CLI is run in this one way. It gets its prompt by stdin, says what it does in lines of JSON, and has
three limits: until its first event, between two of them, and over all. However it ends, nothing that it
started is left, not even when this process is the one that is killed (see ``reaper``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from butlers.domain.session import Exit
from butlers.runtimes import reaper
from butlers.runtimes.base import Limits

CHUNK = 1 << 16
LONGEST_LINE = 1 << 25  # a tool's result of many megabytes in one line is skipped, not collected
STDERR_KEPT = 4_000
FAREWELL_S = 5.0  # what a CLI has to leave by itself after its last event
GRACE_S = 0.5  # between being asked to end and being ended
REAPING_S = 5.0  # what ending all that it started may take


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path
    stdin: str = field(repr=False)


class End(StrEnum):
    """Why a process is over."""

    LEFT = "left"  # by itself
    NOT_FOUND = "not-found"  # it could not be started at all
    NEVER_BEGAN = "never-began"  # no event within the start-up limit
    FELL_SILENT = "fell-silent"
    TOOK_TOO_LONG = "took-too-long"


@dataclass(frozen=True, slots=True)
class Ended:
    why: End
    exit: Exit


Event = Mapping[str, Any]
OnEvent = Callable[[Event], bool]  # True: that was the last one, it should leave now


async def run(command: Command, limits: Limits, on_event: OnEvent) -> Ended:
    """Run it to its end, whatever that is. Cancelled, it takes all that it started with it."""
    began = time.monotonic()
    with _leash() as (ours, theirs):
        try:
            process = await _start(theirs)
        except OSError as error:
            return Ended(End.NOT_FOUND, Exit(None, time.monotonic() - began, str(error)))
        stderr: deque[bytes] = deque(maxlen=64)
        sides = [
            asyncio.create_task(_order(ours, command)),
            asyncio.create_task(_feed(process, command.stdin)),
            asyncio.create_task(_keep_end(process, stderr)),
        ]
        try:
            why = await _listen(process, limits, on_event, began)
        finally:
            await asyncio.shield(asyncio.create_task(_end(process, ours, sides)))
        if refusal := _refusal(ours):
            return Ended(End.NOT_FOUND, Exit(None, time.monotonic() - began, refusal))
    said = b"".join(stderr).decode("utf-8", "replace")[-STDERR_KEPT:]
    return Ended(why, Exit(process.returncode, time.monotonic() - began, said))


@contextmanager
def _leash() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of what holds the reaper: it lets nothing live on once ours is closed."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def _start(theirs: socket.socket) -> Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", reaper.__file__, str(theirs.fileno())),
        env={},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        pass_fds=(theirs.fileno(),),
        start_new_session=True,
    )
    theirs.close()  # so that only the reaper has it
    return process


async def _order(ours: socket.socket, command: Command) -> None:
    order = {"argv": command.argv, "env": dict(command.env), "cwd": str(command.cwd)}
    with contextlib.suppress(ConnectionError):
        await asyncio.get_running_loop().sock_sendall(ours, json.dumps(order).encode() + b"\n")


def _refusal(ours: socket.socket) -> str:
    """Why the program could not be started at all; empty when it was."""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        return ours.recv(1 << 12).decode("utf-8", "replace")
    return ""


async def _listen(process: Process, limits: Limits, on_event: OnEvent, began: float) -> End:
    assert process.stdout is not None
    deadline, late = began + min(limits.startup_s, limits.total_s), End.NEVER_BEGAN
    if limits.total_s <= limits.startup_s:
        late = End.TOOK_TOO_LONG
    leaving = False
    lines = _lines(process.stdout)
    while True:
        try:
            async with asyncio.timeout_at(_loop_time(deadline)):
                line = await anext(lines, None)
        except TimeoutError:
            return End.LEFT if leaving else late
        if line is None:
            await _until_gone(process, FAREWELL_S)
            return End.LEFT
        if leaving or (event := _event(line)) is None:
            continue
        now = time.monotonic()
        if on_event(event):
            leaving, deadline = True, now + FAREWELL_S
        elif now + limits.silence_s < began + limits.total_s:
            deadline, late = now + limits.silence_s, End.FELL_SILENT
        else:
            deadline, late = began + limits.total_s, End.TOOK_TOO_LONG


def _loop_time(monotonic: float) -> float:
    return asyncio.get_running_loop().time() + (monotonic - time.monotonic())


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length up to a limit; one beyond it is skipped as a whole."""
    held, skipping = bytearray(), False
    while chunk := await stream.read(CHUNK):
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            if not skipping:
                yield bytes(held + part)
            held.clear()
            skipping = False
        if not skipping:
            held += rest
        if len(held) > LONGEST_LINE:
            held.clear()
            skipping = True
    if held and not skipping:
        yield bytes(held)


def _event(line: bytes) -> dict[str, Any] | None:
    """What a CLI says beside its events (warnings, banners) is no event."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


async def _feed(process: Process, text: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # it may leave without having read it all
        process.stdin.write(text.encode("utf-8", "replace"))
        await process.stdin.drain()
    process.stdin.close()


async def _keep_end(process: Process, kept: deque[bytes]) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(CHUNK):
        kept.append(chunk[-STDERR_KEPT:])


async def _end(process: Process, ours: socket.socket, sides: list[asyncio.Task[None]]) -> None:
    """Wait for it to be gone: asked first, then made to, with everything it started."""
    sides.append(asyncio.create_task(_drain(process)))  # a full pipe would hide the end
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        await _until_gone(process, GRACE_S)
    with contextlib.suppress(OSError):  # it may be closed already, which says the same
        ours.shutdown(socket.SHUT_WR)  # the reaper ends what is left
    await _until_gone(process, REAPING_S)
    _signal(process.pid, signal.SIGKILL)  # where there is no reaping, the group is all there is
    await process.wait()
    for side in sides:
        side.cancel()
    await asyncio.gather(*sides, return_exceptions=True)


async def _drain(process: Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(CHUNK):
        pass


async def _until_gone(process: Process, patience_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
