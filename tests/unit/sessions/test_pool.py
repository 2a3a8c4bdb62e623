"""Warm processes release their resources however they end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from structlog.testing import capture_logs

from butlers.domain.session import Outcome, SessionResult
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import McpServer
from butlers.sessions.pool import ProcessSpec, WarmProcess


class Broken:
    alive = True

    async def boot(self, expected: str | None = None) -> None:
        return None

    async def connect(self, mcp_servers: Mapping[str, McpServer]) -> None:
        return None

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        return SessionResult(Outcome.OK, "")

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
