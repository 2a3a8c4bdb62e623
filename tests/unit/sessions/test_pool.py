"""Warm processes release their resources however they end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from structlog.testing import capture_logs

from butlers.domain.session import Outcome, SessionResult
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import McpServer, Runtime, WarmCli
from butlers.sessions.guard import LiveSession
from butlers.sessions.pool import ProcessPool, ProcessSpec, WarmProcess, warm_slots
from support.fake_runtime import FakeRuntime
from support.waiting import until


class Ready:
    alive = True

    async def boot(self, expected: str | None = None) -> None:
        return None

    async def connect(self, mcp_servers: Mapping[str, McpServer]) -> None:
        return None

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        return SessionResult(Outcome.OK, "")

    async def close(self) -> None:
        return None


class Broken(Ready):
    async def close(self) -> None:
        raise RuntimeError("it cannot be ended")


async def test_failed_close_is_logged_and_releases_resources() -> None:
    given_back: list[str] = []
    stack = ExitStack()
    stack.callback(given_back.append, "slot")
    with capture_logs() as logs:
        await WarmProcess(Broken(), stack, ProcessSpec("claude-code", None, (), {})).close()
    assert given_back == ["slot"]
    (said,) = logs
    assert said["log_level"] == "error"
    assert "did not end cleanly" in said["event"]


async def test_a_pool_of_two_keeps_one_process_for_each_of_two_models(tmp_path: Path) -> None:
    """Otherwise a classification on a cheap model would never find a process."""
    booted: list[str | None] = []

    def start(
        _runtime: Runtime, spec: ProcessSpec, _env: Mapping[str, str], _stack: ExitStack
    ) -> tuple[WarmCli, LiveSession | None]:
        booted.append(spec.model)
        return Ready(), None

    pool = ProcessPool(2, warm_slots(tmp_path, 8), start)
    small, large = (ProcessSpec("claude-code", model, (), {}) for model in ("small", "large"))
    pool.want("switchboard", FakeRuntime(), small)
    pool.want("general", FakeRuntime(), large)
    pool.want("health", FakeRuntime(), large)
    running = asyncio.create_task(pool.run())
    try:
        await until("two to be ready", lambda: pool.count == 2 or None)
        assert sorted(booted, key=str) == ["large", "small"]
        for butler, spec in (("switchboard", small), ("health", large)):
            taken = await pool.take(butler, FakeRuntime(), spec)
            assert taken is not None
            await taken.close()
            await until("another", lambda: pool.count == 2 or None)
        assert sorted(booted, key=str) == ["large", "large", "small", "small"]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
