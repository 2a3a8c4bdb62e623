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
from integration.runtimes.test_contract import (
    test_a_cancelled_session_leaves_nothing,
    test_a_file_that_a_prompt_names_is_not_read,
    test_a_model_that_fails,
    test_a_model_that_fails_once_is_asked_again,
    test_a_prompt_is_never_a_command,
    test_a_result_of_200_kilobytes,
    test_a_sealed_session_has_its_butlers_tools_alone,
    test_a_tool_call_and_an_answer,
    test_a_tool_that_raises,
    test_instruction_files_are_not_read_by_the_cli,
    test_it_hangs_in_the_middle,
    test_no_credential_at_all,
    test_the_cli_is_ended_from_outside,
    test_the_prompts_arrive_as_they_are,
    test_two_turns_and_two_calls_at_once,
    test_what_it_used_and_which_model,
    test_its_token_is_not_on_the_command_line,
    test_foreign_servers_and_hooks_are_not_loaded,
)
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
