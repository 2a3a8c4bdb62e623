"""A trace belongs to one call: the next call of the same protocol session is not caught up in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from butlers.config.settings import Settings
from butlers.domain.trace import TraceContext
from butlers.wire.telemetry import collecting
from support.collector import Collector
from support.in_process import InProcessButler


class Speaker:
    """An HTTP client that says the trace it is told to say, request by request."""

    def __init__(self, token: str) -> None:
        self.said: str | None = None
        self._token = token

    def client(self, **options: Any) -> httpx2.AsyncClient:
        options["headers"] = {
            **(options.get("headers") or {}),
            "Authorization": f"Bearer {self._token}",
        }
        options.setdefault("timeout", 60)
        if options["timeout"] is None:
            options["timeout"] = 60
        hooks = {"request": [self._say]}
        return httpx2.AsyncClient(**options, event_hooks=hooks, trust_env=False)

    async def _say(self, request: httpx2.Request) -> None:
        if self.said is not None:
            request.headers["traceparent"] = self.said


@asynccontextmanager
async def streamable(url: str, speaker: Speaker) -> AsyncIterator[ClientSession]:
    async with (
        speaker.client() as http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def sse(url: str, speaker: Speaker) -> AsyncIterator[ClientSession]:
    async with (
        sse_client(url, httpx_client_factory=speaker.client) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield session


Connect = Callable[[str, Speaker], AbstractAsyncContextManager[ClientSession]]


@pytest.mark.parametrize("connect", [streamable, sse])
async def test_each_call_runs_in_the_trace_it_came_with(
    tester: InProcessButler, collector: Collector, settings: Settings, connect: Connect
) -> None:
    traces = [TraceContext.new().child() for _ in range(3)]
    speaker = Speaker(tester.owner_token)
    with collecting(settings):
        speaker.said = traces[0].traceparent
        async with connect(tester.butler.url, speaker) as session:
            for number, trace in enumerate(traces):
                speaker.said = trace.traceparent
                await session.call_tool("quick", {"text": str(number)})
            speaker.said = None
            await session.call_tool("quick", {"text": "alone"})
    found = {
        span.json("butlers.tool.arguments")["text"]: span
        for span in collector.spans()
        if span.name == "butler.tool.quick"
    }
    for number, trace in enumerate(traces):
        assert found[str(number)].trace_id == trace.trace_id
        assert found[str(number)].parent_id == trace.span_id
    assert found["alone"].trace_id not in {trace.trace_id for trace in traces}
