"""Answers through the key broker compared with direct ones: first byte, whole answer, and memory.

The model is a process that streams like one: a pause before the first byte, then 200 KB in 200 events over a
second; over four seconds, where many stream at once. The broker is a process of its own too. Both sides of a
ratio are measured alternately.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from benchmarks.report import Measured, percentile, report
from butlers.broker.audit import BrokerAudit
from butlers.broker.grants import SessionTokens, TokenTerms
from butlers.broker.ledger import Ledger
from butlers.broker.server import Broker, serving
from butlers.broker.upstream import Upstreams
from butlers.config.prices import PriceTable
from butlers.domain.clock import SystemClock

EVENTS, EVENT_BYTES = 200, 1000
ONE_S, MANY_S = 1.0, 4.0  # length of a stream: alone, and of many at once
THINKING_S = 0.3  # of the model, before its first byte
ROUNDS, AT_ONCE = 10, 50
BOUND = 1.05
GAP_BOUND = 2.0  # many streams at once do not stall
LIFETIME_S = 3600.0

Times = tuple[float, float, float]  # to the first byte, to the last, and the longest gap between


def run(_options: argparse.Namespace) -> None:
    with _process(_model) as (url, _), _process(_broker, url) as (given, process):
        broker, _, token = given.partition(" ")
        lines = asyncio.run(_measure(url, broker, token, process))
    size = f"{EVENTS} events, {EVENTS * EVENT_BYTES // 1000} KB"
    note = f"{size} in {ONE_S:g} s; {AT_ONCE} at once in {MANY_S:g} s"
    report("broker", lines, note)


async def _measure(model: str, broker: str, token: str, process: psutil.Process) -> list[Measured]:
    direct, brokered = (model, "none"), (broker, token)
    await _answers(*direct, 1)
    await _answers(*brokered, 1)
    before = process.memory_info().rss
    one: dict[str, list[Times]] = {"direct": [], "brokered": []}
    many: dict[str, list[Times]] = {"direct": [], "brokered": []}
    for _ in range(ROUNDS):
        one["direct"] += await _answers(*direct, 1)
        one["brokered"] += await _answers(*brokered, 1)
    peak = before
    for _ in range(3):
        many["direct"] += await _answers(*direct, AT_ONCE)
        asking = asyncio.create_task(_answers(*brokered, AT_ONCE))
        while not asking.done():
            peak = max(peak, process.memory_info().rss)
            await asyncio.sleep(0.05)
        many["brokered"] += await asking
    return [
        _line("first byte, one stream", one, 0, 50),
        _line("whole answer, one stream", one, 1, 50),
        _line(f"first byte, {AT_ONCE} streams", many, 0, 50, bound=None),
        _line(f"whole answer, {AT_ONCE} streams", many, 1, 50, bound=None),
        _line(f"whole answer, {AT_ONCE} streams, slowest", many, 1, 100, bound=None),
        _line(f"longest gap, {AT_ONCE} streams", many, 2, 100, bound=GAP_BOUND),
        Measured("memory of the broker's process", before / 2**20, "MB"),
        Measured(f"added by {AT_ONCE} streams", (peak - before) / 2**20, "MB"),
    ]


def _line(
    what: str,
    times: dict[str, list[Times]],
    which: int,
    percent: float,
    bound: float | None = BOUND,
) -> Measured:
    taken = {
        side: percentile([one[which] for one in found], percent) * 1000
        for side, found in times.items()
    }
    return Measured(what, taken["brokered"], "ms", taken["direct"], at_most=bound)


async def _answers(base: str, token: str, number: int) -> list[Times]:
    limits = httpx.Limits(max_connections=number)
    async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:

        async def ask() -> Times:
            started, first, size, gap = time.perf_counter(), 0.0, 0, 0.0
            latest = started
            seconds = ONE_S if number == 1 else MANY_S
            body = {"model": "benchmark", "max_tokens": 100, "stream": True, "seconds": seconds}
            headers = {"x-api-key": token}
            url = f"{base}/v1/messages"
            async with client.stream("POST", url, json=body, headers=headers) as answer:
                assert answer.status_code == 200
                async for chunk in answer.aiter_raw():
                    now = time.perf_counter()
                    gap = max(gap, now - latest) if first else 0.0
                    first = first or now - started
                    latest = now
                    size += len(chunk)
            assert size > EVENTS * EVENT_BYTES
            return first, time.perf_counter() - started, gap

        return list(await asyncio.gather(*(ask() for _ in range(number))))


# -- the processes -----------------------------------------------------------------------------------


@contextmanager
def _process(target: object, *arguments: str) -> Iterator[tuple[str, psutil.Process]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)  # type: ignore[arg-type]
    process.start()
    try:
        yield ours.recv(), psutil.Process(process.pid)
    finally:
        process.kill()
        process.join()


def _model(pipe: Connection) -> None:
    delta = {"type": "text_delta", "text": "x" * (EVENT_BYTES - 100)}
    event = {"type": "content_block_delta", "index": 0, "delta": delta}
    part = f"event: content_block_delta\ndata: {json.dumps(event)}\n\n".encode()
    used = {"type": "message_delta", "usage": {"input_tokens": 100, "output_tokens": 50_000}}

    async def stream(seconds: float) -> AsyncIterator[bytes]:
        await asyncio.sleep(THINKING_S)
        started = time.perf_counter()
        for number in range(EVENTS):
            yield part + b": " + b"x" * (EVENT_BYTES - len(part) % EVENT_BYTES) + b"\n\n"
            due = started + (number + 1) * seconds / EVENTS
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        yield f"event: message_delta\ndata: {json.dumps(used)}\n\n".encode()

    async def messages(request: Request) -> Response:
        seconds = float((await request.json())["seconds"])
        return StreamingResponse(stream(seconds), media_type="text/event-stream")

    async def serve() -> None:
        app = Starlette(routes=[Route("/v1/messages", messages, methods=["POST"])])
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        pipe.send(f"http://127.0.0.1:{port}")
        await serving

    asyncio.run(serve())


def _broker(pipe: Connection, upstream: str) -> None:
    class Keys:
        async def resolve(self, name: str, *, env: str | None = None) -> str | None:
            return upstream if name.endswith("_BASE_URL") else "a-key"

    async def serve() -> None:
        clock = SystemClock()
        with tempfile.TemporaryDirectory(prefix=f"broker-{os.getpid()}-") as home:
            ledger = Ledger(Path(home))
            prices = PriceTable(dated=datetime.now(UTC).date(), models={})
            broker = Broker(
                ledger,
                SessionTokens(ledger, clock),
                Upstreams(clock, {}),
                prices,
                clock,
                BrokerAudit(Path(home)),
            )
            async with serving(broker):
                expires = clock.monotonic() + LIFETIME_S
                token = broker.grants.mint(TokenTerms("s", "b", "anthropic", Keys(), expires))
                await asyncio.sleep(0.2)
                pipe.send(f"{broker.url}/anthropic {token}")
                await asyncio.Event().wait()

    asyncio.run(serve())
