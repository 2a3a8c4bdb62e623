"""Run one child process to its end: a session's CLI, or a skill's script.

Its output is read within bounds and its time is limited. However it ends, nothing that it started is left,
not even when this process is killed (see ``reaper``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from butlers.domain.session import Exit
from butlers.process.handle import ProcessHandle, open_handle
from butlers.process.sandbox import Sandbox

MAX_LINE = 1 << 25  # a longer line, such as a tool's result of many megabytes, is skipped
STDERR_KEPT = 4_000
EXIT_S = 5.0  # for a CLI to exit by itself after its last event
GRACE_S = 0.5  # between SIGTERM and the forced end
REAP_S = 5.0  # for the reaper to end everything that the process started
DRAIN_S = 1.0  # for the pipes to close after the process is gone
STOP = "stop"  # message of a cancellation that still wants a result
_STDIN, _STDOUT, _STDERR = range(3)


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path
    stdin: bytes = field(default=b"", repr=False)
    sandbox: Sandbox | None = None


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Time limits of a process that reports events."""

    startup_s: float = 60.0  # until the first event
    silence_s: float = 180.0  # between two events
    total_s: float = 300.0

    @classmethod
    def within(cls, total_s: float) -> TimeLimits:
        """Allow half of a long session's time between two events."""
        return cls(silence_s=max(cls().silence_s, total_s / 2), total_s=total_s)


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """Limits of a script. Too much stdout ends it; of stderr the last ``errors`` bytes are kept."""

    seconds: float = 60.0
    output: int = 1024 * 1024
    errors: int = 64 * 1024


class EndReason(StrEnum):
    EXITED = "left"
    NOT_FOUND = "not-found"  # it could not be started
    NEVER_BEGAN = "never-began"  # no event within the startup limit
    FELL_SILENT = "fell-silent"
    TOOK_TOO_LONG = "took-too-long"
    OUTPUT_TOO_LARGE = "said-too-much"
    STOPPED = "stopped"  # cancelled with ``STOP``


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    reason: EndReason
    exit: Exit
    stdout: bytes = b""
    stderr: bytes = b""


Event = Mapping[str, Any]
OnEvent = Callable[[Event], bool]  # True: that was the last one, and the process should exit


async def run_events(command: ProcessCommand, limits: TimeLimits, on_event: OnEvent) -> ProcessEnd:
    """Run a program that writes JSON objects, one per line, to stdout."""
    process = EventProcess(command, on_event)
    process.limit(limits)
    process.close_stdin()
    return await process.run()


async def run_script(command: ProcessCommand, limits: ScriptLimits) -> ProcessEnd:
    """Run a program and return its output. Raise OSError if it cannot be started."""
    return await _ScriptProcess(command, limits).run()


def is_stop(cancelled: asyncio.CancelledError) -> bool:
    return cancelled.args == (STOP,)


class ChildProcess(asyncio.SubprocessProtocol):
    """One process. A subclass reads its stdout and sets its deadline."""

    def __init__(self, command: ProcessCommand, stderr_kept: int = STDERR_KEPT) -> None:
        self._command = command
        self._stderr, self._stderr_kept = bytearray(), stderr_kept
        self._reason: EndReason | None = None
        self._error: Exception | None = None
        self._over, self._exited, self._closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._open = {_STDOUT, _STDERR}
        self._timer: asyncio.TimerHandle | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._unsent, self._stdin_ends = bytearray(command.stdin), False
        self._handle: ProcessHandle | None = None

    async def run(self) -> ProcessEnd:
        """Run it to its end. Raise OSError if it cannot be started.

        Cancellation ends the process with everything it started; a cancellation with the message ``STOP``
        then returns the result instead of raising.
        """
        try:
            return await self._run()
        finally:
            self._set_deadline(None)

    async def _run(self) -> ProcessEnd:
        began = time.monotonic()
        with open_handle() as handle:
            self._handle = handle
            transport = await self._start(handle)
            sending = asyncio.create_task(
                handle.send_command(
                    self._command.argv, self._command.env, self._command.cwd, self._command.sandbox
                )
            )
            try:
                await self._over.wait()
            except asyncio.CancelledError as cancelled:
                self._finish(EndReason.STOPPED)
                if not is_stop(cancelled):
                    raise
            finally:
                sending.cancel()
                await asyncio.shield(asyncio.create_task(self._end(transport, handle)))
            if refusal := handle.start_error():
                raise FileNotFoundError(refusal)
        if self._error is not None:
            raise self._error
        assert self._reason is not None
        stderr = self._stderr.decode("utf-8", "replace")[-STDERR_KEPT:]
        seconds = time.monotonic() - began
        ended = Exit(transport.get_returncode(), seconds, stderr, str(self._reason))
        return ProcessEnd(self._reason, ended, self._output(), bytes(self._stderr))

    def write(self, data: bytes) -> None:
        """Write to its stdin; before the process has started, keep it until then."""
        if self._stdin is None:
            self._unsent += data
        else:
            self._stdin.write(data)

    async def open_port(self, port: int) -> None:
        """Let a process whose sandbox has no network reach this port of the machine."""
        sandbox = self._command.sandbox
        if self._handle is not None and sandbox is not None and sandbox.ports is not None:
            await self._handle.open_port(port)

    def close_stdin(self) -> None:
        self._stdin_ends = True
        if self._stdin is not None:
            self._stdin.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._stderr += data
            del self._stderr[: -self._stderr_kept]
        elif self._reason in (None, EndReason.EXITED):
            self._guarded(self._read, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self._closed.set()
        if fd == _STDOUT and self._reason in (None, EndReason.EXITED):
            self._guarded(self._read_end)

    def process_exited(self) -> None:
        self._exited.set()
        self._finish(EndReason.EXITED)

    def _read(self, data: bytes) -> None:
        raise NotImplementedError

    def _read_end(self) -> None:
        """Handle the end of stdout."""

    def _output(self) -> bytes:
        return b""

    def _guarded(self, read: Callable[..., None], *data: bytes) -> None:
        try:
            read(*data)
        except Exception as error:  # noqa: BLE001  (the loop would only log it; ``run`` raises it)
            self._error = error
            self._finish(EndReason.STOPPED)

    def _finish(self, reason: EndReason) -> None:
        if self._reason is None:
            self._reason = reason
        self._over.set()

    def _set_deadline(
        self, seconds: float | None, reason: EndReason = EndReason.TOOK_TOO_LONG
    ) -> None:
        """Finish with this reason in so many seconds; None: not at all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None and not self._over.is_set():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._finish, reason)

    async def _start(self, handle: ProcessHandle) -> asyncio.SubprocessTransport:
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            *handle.argv,
            env={},
            pass_fds=handle.fds,
            start_new_session=True,
        )
        handle.started()
        stdin = transport.get_pipe_transport(_STDIN)
        assert isinstance(stdin, asyncio.WriteTransport)
        self._stdin = stdin
        stdin.write(bytes(self._unsent))
        if self._stdin_ends:
            stdin.close()
        return transport

    async def _end(self, transport: asyncio.SubprocessTransport, handle: ProcessHandle) -> None:
        """Wait until it is gone: ask it first, then end it with everything it started."""
        if not self._exited.is_set():
            _signal(transport.get_pid(), signal.SIGTERM)
            await _within(GRACE_S, self._exited)
        handle.release()
        await _within(REAP_S, self._exited)
        # Where the system cannot reap, the group is all that can be reached.
        _signal(transport.get_pid(), signal.SIGKILL)
        await self._exited.wait()
        await _within(DRAIN_S, self._closed)
        transport.close()


class EventProcess(ChildProcess):
    """A program that writes JSON objects, one per line, and takes input while it runs.

    Its limits count from ``limit``: until then it may wait as long as it likes.
    """

    def __init__(self, command: ProcessCommand, on_event: OnEvent) -> None:
        super().__init__(command)
        self._on_event = on_event
        self._limits: TimeLimits | None = None
        self._began = 0.0
        self._last = False  # the last event was read
        self._line, self._skipping = bytearray(), False

    async def run(self) -> ProcessEnd:
        """Run it to its end, as ``ChildProcess.run``, but do not raise if it cannot be started."""
        began = time.monotonic()
        try:
            return await super().run()
        except OSError as error:
            seconds = time.monotonic() - began
            ended = Exit(None, seconds, str(error), str(EndReason.NOT_FOUND))
            return ProcessEnd(EndReason.NOT_FOUND, ended)

    def limit(self, limits: TimeLimits) -> None:
        """Count the time from now."""
        self._limits, self._began = limits, time.monotonic()
        if limits.startup_s < limits.total_s:
            self._set_deadline(limits.startup_s, EndReason.NEVER_BEGAN)
        else:
            self._set_deadline(limits.total_s)

    def _read(self, data: bytes) -> None:
        *ends, rest = data.split(b"\n")
        for end in ends:
            if not self._skipping:
                self._read_line(bytes(self._line + end))
            self._line.clear()
            self._skipping = False
        if not self._skipping:
            self._line += rest
        if len(self._line) > MAX_LINE:
            self._line.clear()
            self._skipping = True

    def _read_end(self) -> None:
        if self._line and not self._skipping:
            self._read_line(bytes(self._line))
        if self._reason is None:
            self._set_deadline(EXIT_S, EndReason.EXITED)

    def _read_line(self, line: bytes) -> None:
        if self._last or (event := _event(line)) is None:
            return
        last = self._on_event(event)
        if self._limits is None or self._reason is not None:
            return
        left_s = self._began + self._limits.total_s - time.monotonic()
        if last:
            self._last = True
            self._set_deadline(EXIT_S, EndReason.EXITED)
        elif self._limits.silence_s < left_s:
            self._set_deadline(self._limits.silence_s, EndReason.FELL_SILENT)
        else:
            self._set_deadline(left_s)


class _ScriptProcess(ChildProcess):
    def __init__(self, command: ProcessCommand, limits: ScriptLimits) -> None:
        super().__init__(command, limits.errors)
        self._limits = limits
        self._stdout = bytearray()
        self.close_stdin()

    async def run(self) -> ProcessEnd:
        self._set_deadline(self._limits.seconds)
        return await super().run()

    def _read(self, data: bytes) -> None:
        room = self._limits.output - len(self._stdout)
        self._stdout += data[:room]
        if len(data) > room:
            self._reason = EndReason.OUTPUT_TOO_LARGE  # also when it has exited since
            self._over.set()

    def _output(self) -> bytes:
        return bytes(self._stdout)


def _event(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of this line; None for anything else, such as a warning or a banner."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
