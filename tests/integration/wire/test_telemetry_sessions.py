"""A session hands its trace to the program it starts, and two of them do not mix theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from structlog.testing import capture_logs

from butlers.config.settings import Settings
from butlers.domain.clock import uuid7
from butlers.domain.session import Access, Outcome, SessionRequest, SessionResult, Usage
from butlers.domain.trace import TraceContext
from butlers.runtimes.base import McpServer, Terms
from butlers.wire.client import McpClient
from butlers.wire.telemetry import collecting
from support.collector import Collector
from support.in_process import InProcessButler
from support.messages import request_context


class Program:
    """A runtime that starts a real program, and calls a tool as a CLI does: with no trace of its own."""

    name = "program"

    def __init__(self, at_once: int) -> None:
        self._meeting = asyncio.Barrier(at_once)

    def own_bytes(self, access: Access) -> int:
        return 0

    def holds(self, access: Access) -> bool:
        return True

    def withholds(self, access: Access, directory: Path) -> str | None:
        return None

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> None:
        return None

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult:
        await self._meeting.wait()
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            'printf %s "$TRACEPARENT"',
            env=dict(env),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        ((name, server),) = mcp_servers.items()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, _call, name, server, prompt)
        await self._meeting.wait()
        return SessionResult(Outcome.OK, said.decode(), usage=Usage(11, 2))


def _call(name: str, server: McpServer, text: str) -> None:
    """In a thread, whose context is its own: another process could not know our trace either."""

    async def call() -> None:
        async with McpClient(name, server.url, lambda: server.token) as client:
            await client.call("quick", {"text": text})

    asyncio.run(call())


def asked(number: int) -> SessionRequest:
    request = replace(request_context(), trace_id=f"{number:032x}")
    return SessionRequest(uuid7(), f"prompt {number}", "route", request, request.request_id)


async def test_sessions_side_by_side_keep_their_traces(
    tester: InProcessButler, collector: Collector, settings: Settings
) -> None:
    spawner = tester.butler.spawner
    spawner._slots = asyncio.Semaphore(5)
    spawner.model = Program(5)
    sessions = [asked(number) for number in range(1, 6)]
    with collecting(settings), capture_logs() as lines:
        results = await asyncio.gather(*(spawner.run(session) for session in sessions))

    spans = collector.spans()
    for number, (session, result) in enumerate(zip(sessions, results, strict=True), 1):
        trace_id = f"{number:032x}"
        mine = {span.name: span for span in spans if span.trace_id == trace_id}
        assert set(mine) == {"butler.session", "butler.tool.quick"}
        opened, call = mine["butler.session"], mine["butler.tool.quick"]
        assert TraceContext.parse(result.text) == TraceContext(trace_id, opened.span_id)
        assert call.parent_id == opened.span_id
        assert f"\nprompt {number}\n" in call.json("butlers.tool.arguments")["text"]
        for span in mine.values():
            assert span.attributes["butlers.session"] == str(session.session_id)
        assert opened.attributes["butlers.tokens.input"] == 11
        assert opened.attributes["butlers.outcome"] == "ok"
    assert len([line for line in lines if line["event"] == "session ended"]) == 5

    (tokens,) = (
        point
        for point in collector.points("butlers.session.tokens")
        if point.attributes["type"] == "input"
    )
    assert tokens.value == 55
    (duration,) = collector.points("butlers.session.duration")
    assert duration.count == 5
    assert duration.value > 0


async def test_the_trace_is_handed_over_without_a_collector(tester: InProcessButler) -> None:
    tester.butler.spawner.model = Program(1)
    result = await tester.butler.spawner.run(asked(9))
    assert TraceContext.parse(result.text).trace_id == f"{9:032x}"
