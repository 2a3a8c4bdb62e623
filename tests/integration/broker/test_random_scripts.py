"""Random answers of a model, with random cuts and killed clients: the ledger agrees with the model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from butlers.broker.audit import BrokerAudit
from butlers.broker.grants import SessionTokens, TokenTerms
from butlers.broker.ledger import Entry, Ledger
from butlers.broker.server import Broker, serving
from butlers.broker.upstream import Upstreams
from butlers.config.prices import PriceTable
from butlers.domain.clock import SystemClock
from support.broker_process import ModelKeys, broker_process
from support.properties import examples

SCRIPTS, AT_ONCE = examples(500), 20  # 125 in every run, 500 in `make soak`
CLOCK = SystemClock()
PATHS = {
    "messages": ("anthropic", "/v1/messages"),
    "responses": ("openai", "/responses"),
    "chat": ("openai", "/chat/completions"),
    "gemini": ("gemini", "/v1beta/models/{model}:streamGenerateContent?alt=sse"),
}


@dataclass
class Script:
    """One answer: what it uses, how it is cut into chunks, and who hangs up when."""

    name: str
    api: str
    fresh: int
    cached: int
    output: int
    words: int
    chunk: int
    fails_first: bool
    cut_after: int | None  # chunks, after which the model breaks the connection
    killed_after_s: float | None  # the client
    ended: bool = False  # its client read it to the end

    @property
    def given(self) -> int:
        return self.fresh + self.cached

    @classmethod
    def of(cls, chance: random.Random, number: int) -> Script:
        return cls(
            name=f"m-{number}",
            api=chance.choice(list(PATHS)),
            fresh=chance.randint(1, 100_000),
            cached=chance.choice([0, chance.randint(1, 100_000)]),
            output=chance.randint(1, 20_000),
            words=chance.randint(1, 40),
            chunk=chance.choice([1, 3, 50, 4096]),
            fails_first=chance.random() < 0.1,
            cut_after=chance.randint(0, 5) if chance.random() < 0.15 else None,
            killed_after_s=chance.uniform(0, 0.05) if chance.random() < 0.25 else None,
        )

    def events(self) -> Iterator[dict[str, Any]]:
        match self.api:
            case "messages":
                used = {"input_tokens": self.fresh, "cache_read_input_tokens": self.cached}
                start = {"usage": {**used, "output_tokens": 1}}
                yield {"type": "message_start", "message": start}
                yield from ({"type": "content_block_delta", "n": n} for n in range(self.words))
                yield {"type": "message_delta", "usage": {"output_tokens": self.output}}
            case "responses":
                yield {"type": "response.created", "response": {"usage": None}}
                yield from ({"type": "response.output_text.delta"} for _ in range(self.words))
                details = {"cached_tokens": self.cached}
                used = {"input_tokens": self.given, "output_tokens": self.output}
                usage = {**used, "input_tokens_details": details}
                yield {"type": "response.completed", "response": {"usage": usage}}
            case "chat":
                yield from ({"choices": [{"delta": {"content": "x"}}]} for _ in range(self.words))
                used = {"prompt_tokens": self.given, "completion_tokens": self.output}
                details = {"cached_tokens": self.cached}
                yield {"choices": [], "usage": {**used, "prompt_tokens_details": details}}
            case _:
                used = {
                    "promptTokenCount": self.given,
                    "cachedContentTokenCount": self.cached,
                }
                for word in range(self.words):
                    made = self.output if word == self.words - 1 else 0
                    yield {"usageMetadata": {**used, "candidatesTokenCount": made}}


@dataclass
class Model:
    scripts: dict[str, Script]
    failed: set[str] = field(default_factory=set)

    @property
    def app(self) -> Starlette:
        paths = ("/v1/messages", "/responses", "/chat/completions", "/v1beta/models/{model}")
        return Starlette(routes=[Route(path, self._answer, methods=["POST"]) for path in paths])

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        name = body.get("model") or request.path_params["model"].partition(":")[0]
        script = self.scripts[name]
        if script.fails_first and name not in self.failed:
            self.failed.add(name)
            return Response(status_code=502)
        return StreamingResponse(self._stream(script), media_type="text/event-stream")

    async def _stream(self, script: Script) -> AsyncIterator[bytes]:
        whole = b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in script.events())
        parts = [whole[at : at + script.chunk] for at in range(0, len(whole), script.chunk)]
        step = max(1, len(parts) // 20)  # pauses, however small the chunks are
        for number, part in enumerate(parts):
            if number == script.cut_after:
                raise ConnectionResetError
            yield part
            if number % step == 0:
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def served(model: Model) -> AsyncIterator[str]:
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(model.app, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = server.force_exit = True
        await task


def minted(broker: Broker, keys: ModelKeys, script: Script) -> str:
    expires = CLOCK.monotonic() + 60
    terms = TokenTerms(script.name, "health", PATHS[script.api][0], keys, expires)
    return broker.grants.mint(terms)


async def ask(address: str, token: str, script: Script) -> None:
    provider, path = PATHS[script.api]
    headers = {"authorization": f"Bearer {token}"}
    body = {} if provider == "gemini" else {"model": script.name, "stream": True}
    url = f"{address}/{provider}{path.format(model=script.name)}"
    with contextlib.suppress(httpx.HTTPError, TimeoutError):
        async with (
            asyncio.timeout(script.killed_after_s),
            httpx.AsyncClient(trust_env=False, timeout=30) as client,
        ):
            answer = await client.post(url, headers=headers, json=body)
            script.ended = answer.status_code == 200


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", [14])
async def test_ledger_agrees_with_the_model_to_the_token(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    scripts = [Script.of(chance, number) for number in range(SCRIPTS)]
    model = Model({script.name: script for script in scripts})
    ledger = Ledger(tmp_path)
    prices = PriceTable(dated=datetime.now(UTC).date(), models={})
    broker = Broker(
        ledger,
        SessionTokens(ledger, CLOCK),
        Upstreams(CLOCK, {}),
        prices,
        CLOCK,
        BrokerAudit(tmp_path),
    )
    async with served(model) as url, serving(broker):
        keys = ModelKeys(url)
        for first in range(0, SCRIPTS, AT_ONCE):
            batch = scripts[first : first + AT_ONCE]
            await asyncio.gather(
                *(ask(broker.url, minted(broker, keys, script), script) for script in batch)
            )
        async with asyncio.timeout(10):
            while broker.grants._pending:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert SCRIPTS / 2 < sum(script.ended for script in scripts) < SCRIPTS
    check_ledger(ledger, scripts)


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", [41])
async def test_ledger_agrees_when_the_brokers_process_is_killed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    scripts = [Script.of(chance, number) for number in range(SCRIPTS)]
    model = Model({script.name: script for script in scripts})
    async with served(model) as url:
        for first in range(0, SCRIPTS, AT_ONCE):
            await ask_and_kill(tmp_path, url, scripts[first : first + AT_ONCE], chance)
    ended = sum(script.ended for script in scripts)
    assert 0 < ended < SCRIPTS
    check_ledger(Ledger(tmp_path), scripts)


async def ask_and_kill(
    home: Path, url: str, scripts: Sequence[Script], chance: random.Random
) -> None:
    """Ask all at once; kill the broker when some of the answers have arrived."""
    providers = {script.name: PATHS[script.api][0] for script in scripts}
    last = chance.randrange(len(scripts))
    async with broker_process(home, url, providers) as broker:
        asking = [ask(broker.url, broker.tokens[one.name], one) for one in scripts]
        for number, one in enumerate(asyncio.as_completed(asking)):
            await one
            if number == last:
                broker.kill()


def check_ledger(ledger: Ledger, scripts: Sequence[Script]) -> None:
    """Compare with the model: an answer that was read to its end is counted to the token, and once."""
    found: dict[str, list[Entry]] = {}
    for entry in ledger.since(datetime.now(UTC) - timedelta(hours=1)):
        found.setdefault(entry.session, []).append(entry)
    for script in (one for one in scripts if one.ended):
        (entry,) = found[script.name]
        assert (entry.input_tokens, entry.cached_tokens, entry.output_tokens) == (
            script.given,
            script.cached,
            script.output,
        )
        assert not entry.estimated
    for script in scripts:
        entries = found.get(script.name, [])
        assert len(entries) <= 1
        assert all(one.estimated or one.tokens <= script.given + script.output for one in entries)
    total = ledger.total(datetime.now(UTC) - timedelta(hours=1))
    assert total.tokens == sum(entry.tokens for one in found.values() for entry in one)
