"""A session's environment and limits with the key broker."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo

import pytest

from butlers.broker.ledger import Entry
from butlers.broker.providers import BY_RUNTIME
from butlers.broker.server import Broker
from butlers.config.butler import BudgetConfig, ButlerConfig, load_butler_config
from butlers.config.fleet import FleetConfig
from butlers.config.settings import Settings
from butlers.domain.clock import uuid7
from butlers.domain.session import Access
from butlers.runtimes.registry import cli_runtimes
from butlers.sessions.broker_access import PLACEHOLDER, BrokerAccess, reserve_token
from butlers.sessions.budget import Budget, FleetBudget
from butlers.sessions.workspace import SessionEnvironment

HOST = {
    "PATH": "/bin",
    "ANTHROPIC_API_KEY": "sk-a",
    "CLAUDE_CODE_OAUTH_TOKEN": "oauth",
    "OPENAI_API_KEY": "sk-o",
    "GEMINI_API_KEY": "g",
    "ANTHROPIC_BASE_URL": "http://models.example",
    "HTTPS_PROXY": "http://proxy.example",
    "COPY": "sk-a",
    "DECLARED": "yes",
}


class Store:
    async def resolve(self, name: str, *, env: str | None = None) -> str | None:
        return HOST.get(env or "")


def configured(folder: Path, runtime: str = "") -> ButlerConfig:
    (folder / "butler.toml").write_text(
        '[butler]\nname = "health"\nport = 40103\n[butler.env]\n'
        'optional = ["ANTHROPIC_BASE_URL", "HTTPS_PROXY", "COPY", "DECLARED"]\n'
        f"[butler.runtime]\n{runtime}"
    )
    return load_butler_config(folder, Settings.from_environ({}))


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker.of(Settings(tmp_path, environ=MappingProxyType({})))
    broker.url = "http://127.0.0.1:7"
    return broker


def access_of(broker: Broker, config: ButlerConfig) -> BrokerAccess:
    return BrokerAccess(broker, config, Store(), ())


async def test_environment_has_the_token_in_place_of_each_key(
    broker: Broker, tmp_path: Path
) -> None:
    config = configured(tmp_path)
    environment = SessionEnvironment(config, Store(), HOST, (), access_of(broker, config))
    built = await environment.variables("claude-code", access=Access.WORKSPACE, outside=False)
    assert built == {
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": PLACEHOLDER,
        "CLAUDE_CODE_OAUTH_TOKEN": PLACEHOLDER,
        "OPENAI_API_KEY": PLACEHOLDER,
        "COPY": PLACEHOLDER,
        "DECLARED": "yes",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:7/anthropic",
        "OPENAI_BASE_URL": "http://127.0.0.1:7/openai",
    }
    with reserve_token(broker, built) as token:
        assert token.env["ANTHROPIC_API_KEY"] == token.value
        assert "sk-a" not in token.env.values()
        assert broker.grants.revoke(token.value or "") is not None


async def test_environment_of_a_message_has_only_what_its_cli_needs(
    broker: Broker, tmp_path: Path
) -> None:
    config = configured(tmp_path)
    environment = SessionEnvironment(config, Store(), HOST, (), access_of(broker, config))
    built = await environment.variables("gemini", access=Access.SEALED, outside=True)
    assert built == {
        "PATH": "/bin",
        "GEMINI_API_KEY": PLACEHOLDER,
        "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:7/gemini",
    }


@pytest.mark.parametrize(
    ("runtime", "allowed", "refused"),
    [
        ('model = "sonnet"', "claude-sonnet-4-5", "claude-opus-4-5"),
        ('model = "sonnet[1m]"', "claude-sonnet-4-5", "claude-opus-4-5"),
        ('model = "claude-sonnet-4-5"', "claude-sonnet-4-5-20250929", "claude-haiku-4-5"),
        ("", "anything", None),
        ('model = "sonnet"\nargs = ["--model", "opus"]', "claude-opus-4-5", None),
    ],
)
def test_sealed_session_may_use_the_configured_model(
    broker: Broker, tmp_path: Path, runtime: str, allowed: str, refused: str | None
) -> None:
    access = access_of(broker, configured(tmp_path, runtime))
    with reserve_token(broker, {}) as token:
        access.bind(token, uuid7(), "claude-code", Access.SEALED)
        _, terms = broker.grants.find(token.value)
        assert terms.allows(allowed)
        assert refused is None or not terms.allows(refused)
        assert terms.limits.max_turns == 50


def test_days_are_those_of_the_butler_and_of_the_fleet(broker: Broker, tmp_path: Path) -> None:
    fleet = FleetBudget.of(FleetConfig(daily_usd=Decimal(2)), tmp_path)
    config = BudgetConfig(daily_tokens=1000)
    zone = ZoneInfo("Europe/Berlin")
    budget = Budget(config, broker.prices, zone, fleet, "health", broker.ledger)
    own, whole = budget.days()
    assert (own.butler, own.tokens, own.usd) == ("health", 1000, None)
    assert (whole.butler, whole.usd, whole.tokens_without_price) == (None, 2, 100_000)
    assert own.since(datetime(2026, 11, 17, 1, tzinfo=UTC)).hour == 0


def test_crashed_sessions_have_their_sum_in_the_ledger(broker: Broker) -> None:
    at = datetime.now(UTC)
    for session, usd in (("a", Decimal(1)), ("a", Decimal(2)), ("b", None), ("c", None)):
        broker.ledger.append(Entry(at, session, "health", "openai", "m", 200, 10, 5, 4, 0, usd))
    totals = broker.ledger.session_totals(["a", "b"], at)
    assert set(totals) == {"a", "b"}
    used, unknown = totals["a"].usage, totals["b"].usage
    assert (used.input_tokens, used.output_tokens, used.cached_tokens) == (20, 10, 8)
    assert (used.cost_usd, unknown.cost_usd) == (3, None)


def test_every_runtime_has_a_provider_with_its_credentials_and_address() -> None:
    for name, cli in cli_runtimes().items():
        assert BY_RUNTIME[name].credentials == cli.credentials
        assert BY_RUNTIME[name].base_url_variable in cli.settings
