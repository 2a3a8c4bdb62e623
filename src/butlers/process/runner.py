"""The process of a session: started with what it is given, listened to, and ended with all it started.

Every CLI is run in this one way. It gets its prompt by stdin, says what it does in lines of JSON, and has
three limits: until its first event, between two of them, and over all. However it ends, nothing that it
started is left, not even when this process is the one that is killed (see ``reaper``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from butlers.domain.session import Exit
from butlers.process.handle import Leash, leash
from butlers.runtimes.base import Limits

CHUNK = 1 << 16
LONGEST_LINE = 1 << 25  # a tool's result of many megabytes in one line is skipped, not collected
STDERR_KEPT = 4_000
FAREWELL_S = 5.0  # what a CLI has to leave by itself after its last event
GRACE_S = 0.5  # between being asked to end and being ended
REAPING_S = 5.0  # what ending all that it started may take
STOP = "stop"  # the message of a cancellation that still asks for the facts


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
    STOPPED = "stopped"  # by somebody who wants to know how it was


@dataclass(frozen=True, slots=True)
class Ended:
    why: End
    exit: Exit


Event = Mapping[str, Any]
OnEvent = Callable[[Event], bool]  # True: that was the last one, it should leave now


class Watch:
    """The three limits of a session. They count from ``begin``: a process that waits may wait."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._began = self._deadline = math.inf
        self._late = End.NEVER_BEGAN
        self._leaving = False
        self._timer: asyncio.Timeout | None = None

    def limit(self, limits: Limits) -> None:
        self._limits = limits

    def begin(self) -> None:
        limits, self._began = self._limits, time.monotonic()
        if limits.total_s <= limits.startup_s:
            self._late = End.TOOK_TOO_LONG
        self._set(self._began + min(limits.startup_s, limits.total_s))

    def hear(self, *, last: bool) -> None:
        if self._began == math.inf:
            return
        now, end = time.monotonic(), self._began + self._limits.total_s
        if last:
            self._leaving = True
            self._set(now + FAREWELL_S)
        elif now + self._limits.silence_s < end:
            self._late = End.FELL_SILENT
            self._set(now + self._limits.silence_s)
        else:
            self._late = End.TOOK_TOO_LONG
            self._set(end)

    @property
    def leaving(self) -> bool:
        """It has said its last, and has a little time to go."""
        return self._leaving

    @property
    def verdict(self) -> End:
        """What it means that the time is over."""
        return End.LEFT if self._leaving else self._late

    @contextmanager
    def timed(self) -> Iterator[asyncio.Timeout]:
        self._timer = asyncio.timeout_at(self._loop_deadline)
        try:
            yield self._timer
        finally:
            self._timer = None

    def _set(self, deadline: float) -> None:
        self._deadline = deadline
        if self._timer is not None:  # somebody is waiting under the old one
            self._timer.reschedule(self._loop_deadline)

    @property
    def _loop_deadline(self) -> float | None:
        if self._deadline == math.inf:
            return None
        return asyncio.get_running_loop().time() + (self._deadline - time.monotonic())


Feed = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def run(
    command: Command,
    limits: Limits,
    on_event: OnEvent,
    *,
    feed: Feed | None = None,
    watch: Watch | None = None,
) -> Ended:
    """Run it to its end, whatever that is. Cancelled, it takes all that it started with it; cancelled
    with ``STOP`` it tells how that was.

    Who has more to say to it than one prompt brings a ``feed``, and may begin the watch later.
    """
    began = time.monotonic()
    if watch is None:
        watch = Watch(limits)
        watch.begin()
    with leash() as held:
        try:
            process = await _start(held)
        except OSError as error:
            return _ended(End.NOT_FOUND, None, began, str(error))
        stderr: deque[bytes] = deque(maxlen=64)
        sides = [
            asyncio.create_task(held.order(command.argv, command.env, command.cwd)),
            asyncio.create_task(_feed(process, feed or partial(_say, command.stdin))),
            asyncio.create_task(_keep_end(process, stderr)),
        ]
        try:
            why = await _listen(process, watch, on_event)
        except asyncio.CancelledError as cancelled:
            if not is_stop(cancelled):
                raise
            why = End.STOPPED
        finally:
            await asyncio.shield(asyncio.create_task(_end(process, held, sides)))
        if refusal := held.refusal():
            return _ended(End.NOT_FOUND, None, began, refusal)
    said = b"".join(stderr).decode("utf-8", "replace")[-STDERR_KEPT:]
    return _ended(why, process.returncode, began, said)


def is_stop(cancelled: asyncio.CancelledError) -> bool:
    return cancelled.args == (STOP,)


def _ended(why: End, code: int | None, began: float, said: str) -> Ended:
    return Ended(why, Exit(code, time.monotonic() - began, said, str(why)))


async def _start(held: Leash) -> Process:
    process = await asyncio.create_subprocess_exec(
        *held.argv,
        env={},
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        pass_fds=held.fds,
        start_new_session=True,
    )
    held.started()
    return process


async def _listen(process: Process, watch: Watch, on_event: OnEvent) -> End:
    assert process.stdout is not None
    lines = _lines(process.stdout)
    while True:
        try:
            with watch.timed() as timer:
                async with timer:
                    line = await anext(lines, None)
        except TimeoutError:
            return watch.verdict
        if line is None:
            await _until_gone(process, FAREWELL_S)
            return End.LEFT
        if not watch.leaving and (event := _event(line)) is not None:
            watch.hear(last=on_event(event))


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


async def _feed(process: Process, feed: Feed) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):  # it may leave without having read it all
        await feed(process.stdin)
    process.stdin.close()


async def _say(text: str, writer: asyncio.StreamWriter) -> None:
    writer.write(text.encode("utf-8", "replace"))
    await writer.drain()


async def _keep_end(process: Process, kept: deque[bytes]) -> None:
    assert process.stderr is not None
    while chunk := await process.stderr.read(CHUNK):
        kept.append(chunk[-STDERR_KEPT:])


async def _end(process: Process, held: Leash, sides: list[asyncio.Task[None]]) -> None:
    """Wait for it to be gone: asked first, then made to, with everything it started."""
    sides.append(asyncio.create_task(_drain(process)))  # a full pipe would hide the end
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        await _until_gone(process, GRACE_S)
    held.let_go()  # the reaper ends what is left
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
