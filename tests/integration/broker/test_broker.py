"""The broker between a client and the fake model: tokens, metering, limits, retries and cut streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from butlers.broker.audit import BrokerAudit
from butlers.broker.grants import DayLimit, SessionLimits, SessionTokens, TokenTerms
from butlers.broker.ledger import Ledger
from butlers.broker.server import Broker, UsageEventFilter, serving
from butlers.broker.upstream import Upstreams
from butlers.config.prices import Price, PriceTable
from butlers.domain.clock import SystemClock
from butlers.domain.redaction import redactor
from support.fake_model import Fail, FakeModel, Hang, Say, fake_model

KEYS = {
    "ANTHROPIC_API_KEY": "real-anthropic-key",
    "OPENAI_API_KEY": "real-openai-key",
    "GEMINI_API_KEY": "real-gemini-key",
}
PRICE = Price(input=Decimal(3), cached=Decimal("0.3"), output=Decimal(15))
CLOCK = SystemClock()


class Keys:
    """The credential store of a butler, which also knows where its providers are."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}

    def send_to(self, url: str) -> None:
        self.urls = {
            "ANTHROPIC_BASE_URL": url,
            "OPENAI_BASE_URL": f"{url}/v1",
            "GOOGLE_GEMINI_BASE_URL": url,
        }

    async def resolve(self, name: str, *, env: str | None = None) -> str | None:
        return KEYS.get(name) or self.urls.get(name)


STORE = Keys()


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with fake_model() as model:
        yield model


@pytest.fixture
async def broker(model: FakeModel, tmp_path: Path) -> AsyncIterator[Broker]:
    ledger = Ledger(tmp_path)
    prices = PriceTable(dated=datetime.now(UTC).date(), models={"priced": PRICE})
    STORE.send_to(model.url)
    broker = Broker(
        ledger,
        SessionTokens(ledger, CLOCK),
        Upstreams(CLOCK, {}),
        prices,
        CLOCK,
        BrokerAudit(tmp_path),
    )
    async with serving(broker):
        yield broker


def terms(provider: str = "anthropic", session: str = "s1", **given: Any) -> TokenTerms:
    expires_at = CLOCK.monotonic() + 60
    return TokenTerms(session, given.pop("butler", "health"), provider, STORE, expires_at, **given)


def a_day(tokens: int, butler: str | None = "health") -> DayLimit:
    return DayLimit("today's budget", lambda now: now - timedelta(hours=1), butler, tokens)


ANTHROPIC = ("anthropic", "/v1/messages", {"model": "priced", "max_tokens": 100})
RESPONSES = ("openai", "/responses", {"model": "priced"})
CHAT = ("openai", "/chat/completions", {"model": "priced"})
GEMINI = ("gemini", "/v1beta/models/priced:generateContent", {})
APIS = [ANTHROPIC, RESPONSES, CHAT, GEMINI]
IDS = ["messages", "responses", "chat", "gemini"]


async def ask(
    broker: Broker, token: str, api: Any = ANTHROPIC, *, stream: bool = True, **body: Any
) -> httpx.Response:
    provider, path, given = api
    headers = {
        "anthropic": {"x-api-key": token},
        "openai": {"authorization": f"Bearer {token}"},
        "gemini": {"x-goog-api-key": token},
    }[provider]
    if provider == "gemini" and stream:
        path = path.replace("generateContent", "streamGenerateContent") + "?alt=sse"
    content = {**given, "messages": [{"role": "user", "content": "Hello"}], **body}
    if provider == "gemini":
        content = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
    elif stream:
        content["stream"] = True
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        return await client.post(f"{broker.url}/{provider}{path}", headers=headers, json=content)


@pytest.mark.parametrize("api", APIS, ids=IDS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_an_answer_passes_byte_for_byte_and_its_usage_is_in_the_ledger(
    broker: Broker, model: FakeModel, api: Any, stream: bool
) -> None:
    model.script = [Say("A long answer. " * 1000)]
    token = broker.grants.mint(terms(api[0]))
    answer = await ask(broker, token, api, stream=stream)
    assert answer.status_code == 200
    assert "A long answer." in answer.text
    (entry,) = broker.ledger.since(datetime.now(UTC) - timedelta(minutes=1))
    cached = 200
    given = 1200 if api is ANTHROPIC else 1000  # Anthropic counts cached tokens apart
    assert (entry.input_tokens, entry.cached_tokens, entry.output_tokens) == (given, cached, 25)
    assert (entry.session, entry.butler, entry.model) == ("s1", "health", "priced")
    assert not entry.estimated
    assert entry.usd == (1000 * 3 if api is ANTHROPIC else 800 * 3) / Decimal(10**6) + (
        200 * Decimal("0.3") + 25 * 15
    ) / Decimal(10**6)


@pytest.mark.parametrize("api", APIS, ids=IDS)
async def test_the_provider_gets_the_real_key_and_never_the_token(
    broker: Broker, model: FakeModel, api: Any
) -> None:
    token = broker.grants.mint(terms(api[0]))
    await ask(broker, token, api)
    (asked,) = model.requests
    assert token not in json.dumps(dict(asked.headers))
    assert KEYS[
        {"anthropic": "ANTHROPIC", "openai": "OPENAI", "gemini": "GEMINI"}[api[0]] + "_API_KEY"
    ] in (json.dumps(dict(asked.headers)))


async def test_oauth_token_of_claude_is_a_bearer_token(broker: Broker, model: FakeModel) -> None:
    class OauthStore:
        async def resolve(self, name: str, *, env: str | None = None) -> str | None:
            found = {"CLAUDE_CODE_OAUTH_TOKEN": "real-oauth", "ANTHROPIC_BASE_URL": model.url}
            return found.get(name)

    given = TokenTerms("s1", "health", "anthropic", OauthStore(), CLOCK.monotonic() + 60)
    token = broker.grants.mint(given)
    async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
        answer = await client.post(
            f"{broker.url}/anthropic/v1/messages",
            headers={"authorization": f"Bearer {token}", "anthropic-beta": "oauth-2025-04-20"},
            json={"model": "priced", "messages": []},
        )
    assert answer.status_code == 200
    (asked,) = model.requests
    assert asked.headers["authorization"] == "Bearer real-oauth"
    assert asked.headers["anthropic-beta"] == "oauth-2025-04-20"
    assert "x-api-key" not in asked.headers


async def test_each_butler_has_its_own_key(broker: Broker, model: FakeModel) -> None:
    class Own(Keys):
        async def resolve(self, name: str, *, env: str | None = None) -> str | None:
            return "key-of-general" if name == "ANTHROPIC_API_KEY" else self.urls.get(name)

    own = Own()
    own.send_to(model.url)
    general = TokenTerms("s2", "general", "anthropic", own, CLOCK.monotonic() + 60)
    for token in (broker.grants.mint(terms()), broker.grants.mint(general)):
        await ask(broker, token)
    keys = [asked.headers["x-api-key"] for asked in model.requests]
    assert keys == ["real-anthropic-key", "key-of-general"]


async def test_credential_store_that_fails_is_a_failure_of_the_broker(broker: Broker) -> None:
    class Broken:
        async def resolve(self, name: str, *, env: str | None = None) -> str | None:
            raise OSError("the database is gone")

    token = broker.grants.mint(
        TokenTerms("s1", "health", "anthropic", Broken(), CLOCK.monotonic() + 60)
    )
    assert (await ask(broker, token)).status_code == 503
    grant, _ = broker.grants.find(token)
    assert grant.failure == "the key broker could not read the credential: the database is gone"


async def test_a_chat_stream_is_asked_for_its_usage(broker: Broker, model: FakeModel) -> None:
    answer = await ask(broker, broker.grants.mint(terms("openai")), CHAT)
    assert model.requests[0].body["stream_options"] == {"include_usage": True}
    assert "[DONE]" in answer.text


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_usage_event_that_was_not_asked_for_is_left_out(size: int) -> None:
    delta = b'data: {"choices": [{"delta": {"content": "the \\"usage\\" of it"}}]}\n\n'
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
    given, end = delta + usage, b"data: [DONE]\n\n"
    filtered, stream = UsageEventFilter(), given + end
    passed = b"".join(
        filtered.without(stream[at : at + size]) for at in range(0, len(stream), size)
    )
    assert passed == delta + b"\n" + end


@pytest.mark.parametrize("case", ["none", "unknown", "unbound", "expired", "revoked", "real key"])
async def test_a_token_that_stands_for_no_session_is_refused(
    broker: Broker, model: FakeModel, case: str
) -> None:
    grants = broker.grants
    expired = TokenTerms("s1", "health", "anthropic", STORE, CLOCK.monotonic() - 1)
    revoked = grants.mint(terms())
    grants.revoke(revoked)
    token = {
        "none": "",
        "unknown": "butlers-nothing",
        "unbound": grants.mint(),
        "expired": grants.mint(expired),
        "revoked": revoked,
        "real key": KEYS["ANTHROPIC_API_KEY"],
    }[case]
    answer = await ask(broker, token)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert model.requests == []


async def test_an_unbound_token_works_once_it_is_bound(broker: Broker) -> None:
    token = broker.grants.mint()
    broker.grants.bind(token, terms())
    assert (await ask(broker, token)).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/files", 403), ("/v1/organizations/keys", 403), ("/v1/messages/batches", 403)],
)
async def test_other_paths_are_refused_and_shown(
    broker: Broker, model: FakeModel, tmp_path: Path, path: str, status: int
) -> None:
    token = broker.grants.mint(terms())
    answer = await ask(broker, token, ("anthropic", path, {"model": "priced"}))
    assert answer.status_code == status
    assert model.requests == []
    (refused,) = broker.audit.refusals()
    assert (refused["path"], refused["method"], refused["status"]) == (path, "POST", status)
    assert (refused["butler"], refused["session"]) == ("health", "s1")
    again = BrokerAudit(tmp_path)  # of the next process
    assert list(again.refusals()) == [refused]


async def test_a_refused_path_shows_no_secret(broker: Broker) -> None:
    redactor.register("sk-hidden-in-a-path")
    await ask(broker, "nobody", ("anthropic", "/v1/sk-hidden-in-a-path", {}))
    (refused,) = broker.audit.refusals()
    assert "sk-hidden" not in json.dumps(refused)
    assert (refused["butler"], refused["status"]) == (None, 401)


async def test_exchanges_are_kept_only_for_debugging_and_redacted(
    broker: Broker, tmp_path: Path
) -> None:
    token = broker.grants.mint(terms())
    file = tmp_path / "broker" / "debug.jsonl"
    await ask(broker, token)
    assert not file.exists()
    broker.audit.debug = True
    redactor.register("planted-secret-of-the-prompt")
    await ask(broker, token, system="planted-secret-of-the-prompt")
    (kept,) = (json.loads(line) for line in file.read_text().splitlines())
    assert "Hello" in kept["request"]
    assert "planted-secret" not in kept["request"]
    assert "message_stop" in kept["answer"]
    assert file.stat().st_mode & 0o777 == 0o600


async def test_other_models_and_other_providers_are_refused(
    broker: Broker, model: FakeModel
) -> None:
    token = broker.grants.mint(terms(models=("sonnet",)))
    assert (await ask(broker, token, model="claude-opus-5")).status_code == 403
    assert (await ask(broker, token, model="claude-sonnet-5")).status_code == 200
    elsewhere = await ask(broker, token, RESPONSES, model="claude-sonnet-5")
    assert elsewhere.status_code == 403
    assert "does not use openai" in elsewhere.text
    assert len(model.requests) == 1


@pytest.mark.parametrize("api", APIS, ids=IDS)
@pytest.mark.parametrize("limit", ["turns", "tokens", "usd", "butler", "fleet"])
async def test_a_session_is_stopped_within_one_request_of_its_limit(
    broker: Broker, model: FakeModel, api: Any, limit: str
) -> None:
    given: dict[str, Any] = {
        "turns": {"limits": SessionLimits(max_turns=3)},
        "tokens": {"limits": SessionLimits(max_tokens=3_000)},
        "usd": {"limits": SessionLimits(max_usd=Decimal("0.008"))},
        "butler": {"days": (a_day(3_000),)},
        "fleet": {"days": (a_day(3_000, None),)},
    }[limit]
    token = broker.grants.mint(terms(api[0], **given))
    answers = [await ask(broker, token, api) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 400, 400]
    assert len(model.turns) == 3
    grant = broker.grants.revoke(token)
    assert grant is not None
    assert grant.stopped is not None
    assert "used" in grant.stopped
    assert grant.stopped in answers[-1].text
    assert grant.used.requests == 3


async def test_concurrent_sessions_do_not_overspend_together(
    broker: Broker, model: FakeModel
) -> None:
    """Twenty sessions of one butler at once: each request but one waits for room."""
    model.script = [Say("Slow.", sleep=0.05)]
    tokens = [broker.grants.mint(terms(session=f"s{n}", days=(a_day(6_000),))) for n in range(20)]
    answers = await asyncio.gather(*(ask(broker, token) for token in tokens))
    assert sorted({answer.status_code for answer in answers}) == [200, 400]
    total = broker.ledger.total(datetime.now(UTC) - timedelta(hours=1), "health")
    assert 6_000 <= total.tokens < 6_000 + 1_225


async def test_limits_hold_for_what_another_process_used(broker: Broker, tmp_path: Path) -> None:
    token = broker.grants.mint(terms(days=(a_day(2_000),)))
    assert (await ask(broker, token)).status_code == 200
    (entry,) = broker.ledger.since(datetime.now(UTC) - timedelta(minutes=1))
    Ledger(tmp_path).append(entry)
    assert (await ask(broker, token)).status_code == 400


async def test_a_pause_asked_of_one_session_is_kept_by_all(
    broker: Broker, model: FakeModel
) -> None:
    model.script = [Fail(429, times=1, headers={"Retry-After": "120"}), Say("Done.")]
    token = broker.grants.mint(terms())
    first = await ask(broker, token)
    assert (first.status_code, first.headers["retry-after"]) == (429, "120")
    second = await ask(broker, broker.grants.mint(terms(session="s2")))
    assert second.status_code == 429
    assert 100 < int(second.headers["retry-after"]) <= 121
    assert len(model.turns) == 1
    assert broker.status()["providers"]["anthropic"]["state"] == "paused"


@pytest.mark.parametrize("status", [429, 502, 503, 529])
async def test_a_short_failure_is_retried_here(
    broker: Broker, model: FakeModel, status: int
) -> None:
    model.script = [Fail(status, times=1), Say("Done.")]
    answer = await ask(broker, broker.grants.mint(terms()))
    assert answer.status_code == 200
    assert len(model.turns) == 2
    assert broker.ledger.total(datetime.now(UTC) - timedelta(hours=1)).requests == 1


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_final_answer_of_the_provider_is_passed_on(
    broker: Broker, model: FakeModel, status: int
) -> None:
    model.script = [Fail(status)]
    answer = await ask(broker, broker.grants.mint(terms()))
    assert answer.status_code == status
    assert "The fake model fails." in answer.text
    assert broker.ledger.total(datetime.now(UTC) - timedelta(hours=1)).requests == 0


async def test_a_provider_that_is_away_is_a_failure_with_its_own_text(broker: Broker) -> None:
    STORE.send_to("http://127.0.0.1:9")
    answer = await ask(broker, broker.grants.mint(terms()))
    assert answer.status_code == 503
    assert "anthropic cannot be reached" in answer.json()["error"]["message"]


async def test_a_client_that_hangs_up_ends_the_request_and_frees_its_room(
    broker: Broker, model: FakeModel
) -> None:
    model.script = [Hang()]
    token = broker.grants.mint(terms(days=(a_day(50_000),)))
    with pytest.raises(httpx.ReadTimeout):
        async with httpx.AsyncClient(trust_env=False, timeout=0.3) as client:
            await client.post(
                f"{broker.url}/anthropic/v1/messages",
                headers={"x-api-key": token},
                json={"model": "priced"},
            )
    async with asyncio.timeout(10):
        while broker.grants._pending:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_foreign_host_header_is_refused(broker: Broker, model: FakeModel) -> None:
    token = broker.grants.mint(terms())
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"{broker.url}/anthropic/v1/messages",
            headers={"x-api-key": token, "host": "attacker.example:80"},
            json={"model": "priced"},
        )
    assert answer.status_code == 403
    assert model.requests == []
