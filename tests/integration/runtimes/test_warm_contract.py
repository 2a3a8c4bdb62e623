"""The contract once more, asked of processes that were booted before their prompt was known."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.session import Access, Outcome, SessionRequest, SessionResult
from butlers.runtimes.base import McpServer, NotWarm, WarmCli
from integration.runtimes import test_contract as contract
from support.cli_session import CliSession
from support.clis import CLAUDE, CODEX, Cli
from support.fake_model import FakeModel, Say, Use
from support.in_process import InProcessButler


class WarmSession(CliSession):
    expected: str | None = None  # instead of the system prompt that it is asked with

    def process(self, servers: dict[str, McpServer]) -> WarmCli | None:
        return self.adapter.warm(servers, self.environment, self.terms)

    async def invoke(self, prompt: str = "Do it.") -> SessionResult:
        asked = SessionRequest(uuid7(), prompt, "test", tools=self.tools)
        with self.tester.butler.guard.admit(asked) as token:
            servers = {"tester": McpServer(self.url or self.tester.butler.url, token)}
            process = self.process(servers)
            assert process is not None
            try:
                await process.boot(self.expected or self.system_prompt)
                await self.introduce(process, servers)
                return await process.ask(prompt, self.system_prompt, self.limits)
            finally:
                await process.close()

    def starts(self, access: Access) -> bool:
        """Whatever else is asked for starts cold."""
        return access is Access.SEALED

    async def introduce(self, process: WarmCli, servers: dict[str, McpServer]) -> None:
        """It knows its butler already."""


class SharedSession(WarmSession):
    def process(self, servers: dict[str, McpServer]) -> WarmCli | None:
        return self.adapter.warm({}, self.environment, self.terms, ("other", *servers))

    async def introduce(self, process: WarmCli, servers: dict[str, McpServer]) -> None:
        await process.connect(servers)


@pytest.fixture(
    params=[(cli, made) for made in (WarmSession, SharedSession) for cli in (CLAUDE, CODEX)],
    ids=("claude-code", "codex", "claude-code-shared", "codex-shared"),
)
def kind(request: pytest.FixtureRequest) -> tuple[Cli, type[WarmSession]]:
    chosen: tuple[Cli, type[WarmSession]] = request.param
    return chosen


@pytest.fixture
def cli(kind: tuple[Cli, type[WarmSession]]) -> Cli:
    return kind[0]


@pytest.fixture
def cli_session(
    tester: InProcessButler,
    model: FakeModel,
    kind: tuple[Cli, type[WarmSession]],
    executable: Path,
    private: Path,
) -> CliSession:
    cli, made = kind
    return made(tester, model, cli, cli.adapter(executable), private)


test_a_tool_call_and_an_answer = contract.test_a_tool_call_and_an_answer
test_usage_and_model_are_reported = contract.test_usage_and_model_are_reported
test_the_prompts_arrive_as_they_are = contract.test_the_prompts_arrive_as_they_are
test_the_system_prompt_arrives_to_the_byte = contract.test_the_system_prompt_arrives_to_the_byte
test_a_prompt_is_never_a_command = contract.test_a_prompt_is_never_a_command
test_a_file_that_a_prompt_names_is_not_read = contract.test_a_file_that_a_prompt_names_is_not_read
test_two_turns_and_two_calls_at_once = contract.test_two_turns_and_two_calls_at_once
test_a_result_of_200_kilobytes = contract.test_a_result_of_200_kilobytes
test_a_tool_that_this_session_was_not_given = contract.test_a_tool_that_this_session_was_not_given
test_a_cancelled_session_leaves_nothing = contract.test_a_cancelled_session_leaves_nothing
test_a_tool_that_raises = contract.test_a_tool_that_raises
test_a_model_that_fails = contract.test_a_model_that_fails
test_a_model_that_fails_once_is_asked_again = contract.test_a_model_that_fails_once_is_asked_again
test_no_credential_at_all = contract.test_no_credential_at_all
test_cli_that_hangs_in_the_middle_times_out = contract.test_cli_that_hangs_in_the_middle_times_out
test_cli_killed_from_outside_is_a_crash = contract.test_cli_killed_from_outside_is_a_crash
test_sealed_session_has_only_its_butlers_tools = (
    contract.test_sealed_session_has_only_its_butlers_tools
)
test_instruction_files_are_not_read_by_the_cli = (
    contract.test_instruction_files_are_not_read_by_the_cli
)
test_its_token_is_not_on_the_command_line = contract.test_its_token_is_not_on_the_command_line


async def test_foreign_servers_and_hooks_are_not_loaded(
    cli_session: CliSession, tmp_path: Path
) -> None:
    await contract.test_foreign_servers_and_hooks_are_not_loaded(
        cli_session, tmp_path, Access.SEALED
    )


async def test_unexpected_system_prompt_replaces_the_expected_one(
    cli_session: CliSession,
) -> None:
    assert isinstance(cli_session, WarmSession)
    cli_session.expected = "You are somebody else, called MARIGOLD."
    cli_session.model.script = [Use("write", text="milk"), Say("Done.")]
    result = await cli_session.invoke()
    assert (result.outcome, result.text) == (Outcome.OK, "Done.")
    assert await contract.rows(cli_session) == ["milk"]
    for turn in cli_session.model.turns:
        assert turn.strings.count(cli_session.system_prompt) == 1
        assert "MARIGOLD" not in turn.text


async def test_unreachable_server_is_found_before_the_prompt_is_sent(
    cli_session: CliSession,
) -> None:
    """So that a cold start can take over, and nothing was paid for."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        cli_session.url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        cli_session.model.script = [Use("write", text="milk"), Say("Done.")]
        with pytest.raises(NotWarm):
            await cli_session.invoke()
    assert cli_session.model.turns == []
    assert await contract.rows(cli_session) == []
    assert cli_session.processes() == []
