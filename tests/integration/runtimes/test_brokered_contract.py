"""The contract once more, asked of CLIs that reach their model through the key broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from butlers.broker.grants import TokenTerms
from butlers.broker.providers import BY_RUNTIME
from butlers.broker.server import Broker, serving
from butlers.config.settings import Settings
from butlers.runtimes.base import Terms
from integration.runtimes import test_contract as contract
from support.cli_session import PATH, CliSession
from support.clis import Cli
from support.fake_model import FakeModel
from support.in_process import InProcessButler


@dataclass
class Store:
    """A credential store with the variables that lead to the fake model."""

    variables: dict[str, str]

    async def resolve(self, name: str, *, env: str | None = None) -> str | None:
        return self.variables.get(name)


@dataclass
class BrokeredSession(CliSession):
    broker: Broker = field(kw_only=True)

    @property
    def terms(self) -> Terms:
        return replace(super().terms, brokered=True)

    @property
    def environment(self) -> dict[str, str]:
        provider, store = (
            BY_RUNTIME[self.cli.name],
            Store(dict(self.cli.environment(self.model.url))),
        )
        expires = self.broker.clock.monotonic() + 120
        terms = TokenTerms("contract", "tester", provider.name, store, expires)
        return {
            "PATH": PATH,
            self.cli.no_key: self.broker.grants.mint(terms),
            provider.base_url_variable: self.broker.base_url(provider),
            **self.more,
        }


@pytest.fixture
async def broker(offline: None, tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(Broker.of(Settings(tmp_path / "broker"))) as broker:
        yield broker


@pytest.fixture
def cli_session(
    tester: InProcessButler,
    model: FakeModel,
    cli: Cli,
    executable: Path,
    private: Path,
    broker: Broker,
) -> CliSession:
    return BrokeredSession(tester, model, cli, cli.adapter(executable), private, broker=broker)


test_a_tool_call_and_an_answer = contract.test_a_tool_call_and_an_answer
test_usage_and_model_are_reported = contract.test_usage_and_model_are_reported
test_two_turns_and_two_calls_at_once = contract.test_two_turns_and_two_calls_at_once
test_the_prompts_arrive_as_they_are = contract.test_the_prompts_arrive_as_they_are
test_the_system_prompt_arrives_to_the_byte = contract.test_the_system_prompt_arrives_to_the_byte
test_a_result_of_200_kilobytes = contract.test_a_result_of_200_kilobytes
test_a_tool_that_raises = contract.test_a_tool_that_raises
test_a_model_that_fails = contract.test_a_model_that_fails
test_a_model_that_fails_once_is_asked_again = contract.test_a_model_that_fails_once_is_asked_again
test_model_that_never_answers_times_out = contract.test_model_that_never_answers_times_out
test_cli_killed_from_outside_is_a_crash = contract.test_cli_killed_from_outside_is_a_crash
test_a_cancelled_session_leaves_nothing = contract.test_a_cancelled_session_leaves_nothing
test_full_session_has_shell_tools = contract.test_full_session_has_shell_tools
