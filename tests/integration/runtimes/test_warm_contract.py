"""The contract once more, asked of processes that were booted before their prompt was known."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.domain.ids import uuid7
from butlers.domain.session import SessionRequest, SessionResult
from butlers.runtimes.base import McpServer
from integration.daemon.house import House
from integration.runtimes.bench import SYSTEM_PROMPT, Bench
from integration.runtimes.clis import CLAUDE, CODEX, Cli
from support.fake_model import FakeModel


class WarmBench(Bench):
    async def invoke(self, prompt: str = "Do it.") -> SessionResult:
        asked = SessionRequest(uuid7(), prompt, "test", tools=self.tools)
        with self.house.butler.guard.admit(asked) as token:
            servers = {"tester": McpServer(self.url or self.house.butler.url, token)}
            warm = self.adapter.warm(servers, self.environment, self.terms)
            assert warm is not None
            try:
                await warm.boot()
                return await warm.ask(prompt, SYSTEM_PROMPT, self.limits)
            finally:
                await warm.close()


@pytest.fixture(params=(CLAUDE, CODEX), ids=lambda cli: cli.name)
def cli(request: pytest.FixtureRequest) -> Cli:
    chosen: Cli = request.param
    return chosen


@pytest.fixture
def bench(house: House, model: FakeModel, cli: Cli, executable: Path, private: Path) -> Bench:
    return WarmBench(house, model, cli, cli.adapter(executable), private)
