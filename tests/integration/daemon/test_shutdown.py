"""Shutdown loses no running call, rejects new ones with an error code, and ends in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.daemon.ports import bind_port, hold_port
from butlers.db.database import Login
from butlers.db.provision import Provisioner
from butlers.domain.caller import CallerKind
from butlers.domain.errors import PeerUnavailable, ShuttingDown
from butlers.scheduling.scheduler import Scheduler
from butlers.wire.tokens import FleetKey
from support import mcp_clients as clients
from support.clocks import SetClock
from support.in_process import InProcessButler, MakeButler
from support.postbox import load_config
from support.waiting import until
from support.waiting_sessions import MODULES, held_locks, write_waiting_butler

GENERATIONS = (clients.ours, clients.mcp_streamable, clients.mcp_sse)  # one of each transport
SHORT = "[butler.shutdown]\ntimeout_s = 0.2\n"


ENDS = [*(f"module shutdown {name}" for name in reversed(MODULES)), "database pool closed"]
NINE = datetime(2026, 5, 13, 9, tzinfo=UTC)
AT_NINE = """\
runtime.max_concurrent_sessions = 2
shutdown.timeout_s = 3600
switchboard = { advertise = true, url = "http://127.0.0.1:9/mcp" }
schedule = [{ name = "nine", cron = "0 9 * * *", prompt = "wait for lock 2" }]
"""


def assert_port_is_free(port: int) -> None:
    with bind_port(port, patience_s=0) as again:
        hold_port(again)


def assert_ended_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """Return the server's log lines about cancelled or cut streams."""
    assert [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.ERROR] == []


async def until_refusing(tester: InProcessButler) -> None:
    """Wait until the shutdown rejects calls from outside."""
    async with tester.owner() as owner:

        async def refused() -> bool:
            try:
                await owner.call("quick")
            except ShuttingDown:
                return True
            return False

        await until("the butler to refuse", refused)


async def test_running_calls_of_every_client_get_their_results(
    tester: InProcessButler, caplog: pytest.LogCaptureFixture
) -> None:
    url, token, port = tester.butler.url, tester.owner_token, tester.port
    async with AsyncExitStack() as stack:
        connected = {
            connect.__name__: await stack.enter_async_context(connect(url, token))
            for connect in clients.ALL
        }
        for connect in clients.ALL:  # idle streams
            await stack.enter_async_context(connect(url, token))
        calls = {
            name: asyncio.create_task(client.call("slow", {"label": name}))
            for name, client in connected.items()
        }
        await tester.until_running(*connected)

        stopping = asyncio.create_task(tester.butler.stop())
        await until_refusing(tester)
        assert not any(call.done() for call in calls.values())
        tester.open_gate()

        for name, call in calls.items():
            assert await call == {"label": name}
        await stopping
        assert_port_is_free(port)
    assert_ended_in_order(caplog)


async def test_new_calls_are_rejected_while_running_ones_finish(tester: InProcessButler) -> None:
    async with tester.owner() as owner, tester.peer("switchboard") as peer:
        running = asyncio.create_task(owner.call("slow", {"label": "last"}))
        await tester.until_running("last")
        stopping = asyncio.create_task(tester.butler.stop())
        await until_refusing(tester)

        for outsider in (owner, peer):
            with pytest.raises(ShuttingDown) as refused:
                await outsider.call("quick")
            assert refused.value.retryable
            assert refused.value.hint
        async with tester.session() as session:  # a running call waits for it
            assert (await session.call("quick"))["caller"] == "session"

        tester.open_gate()
        assert await running == {"label": "last"}
        await stopping
        with pytest.raises(PeerUnavailable):
            await owner.call("quick")
    assert_port_is_free(tester.port)


async def test_clients_of_older_protocols_get_the_same_rejection(tester: InProcessButler) -> None:
    async with (
        clients.mcp_sse(tester.butler.url, tester.owner_token) as sse,
        clients.mcp_streamable(tester.butler.url, tester.owner_token) as streamable,
    ):
        running = asyncio.create_task(sse.call("slow", {"label": "last"}))
        await tester.until_running("last")
        stopping = asyncio.create_task(tester.butler.stop())
        await until_refusing(tester)

        for client in (sse, streamable):
            error = (await client.call("quick", {}))["error"]
            assert (error["code"], error["retryable"]) == ("shutting_down", True)

        tester.open_gate()
        assert await running == {"label": "last"}
        await stopping


async def test_running_trigger_may_still_start_its_session(tester: InProcessButler) -> None:
    """One session at a time: the second waits for its turn, which comes during the shutdown."""
    async with tester.owner() as owner:
        first = asyncio.create_task(owner.call("trigger", {"prompt": "wait for one"}))
        await tester.until_running("one")
        second = asyncio.create_task(owner.call("trigger", {"prompt": "keep two"}))
        await until("both to be in flight", lambda: tester.butler.in_flight.count == 3 or None)

        stopping = asyncio.create_task(tester.butler.stop())
        await until_refusing(tester)
        tester.open_gate()

        assert (await first)["output"] == "Waited for one."
        assert (await second)["output"] == "Kept: two as number 1."
        await stopping
    assert await tester.count("entries") == 1


async def test_committed_write_is_answered_before_the_shutdown_ends(
    tester: InProcessButler,
) -> None:
    async with tester.owner() as owner:
        running = asyncio.create_task(owner.call("slow_write", {"label": "kept"}))
        await tester.until_running("kept")
        stopping = asyncio.create_task(tester.butler.stop())
        await until_refusing(tester)
        tester.open_gate()
        assert await running == {"label": "kept"}
        await stopping
    assert await tester.count("entries") == 1


@pytest.mark.parametrize("tool", ["slow", "slow_write"])
@pytest.mark.parametrize("connect", GENERATIONS, ids=lambda connect: connect.__name__)
async def test_call_that_never_ends_does_not_delay_the_shutdown(
    make_butler: MakeButler, connect: clients.Connect, tool: str
) -> None:
    tester = make_butler(extra=SHORT)
    await tester.start()

    async def hang() -> None:
        async with connect(tester.butler.url, tester.owner_token) as client:
            await client.call(tool, {"label": "stuck"})

    call = asyncio.create_task(hang())
    await tester.until_running("stuck")
    await tester.butler.stop()

    assert tester.bench().running == []  # it was cancelled
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await tester.count("entries") == 0
    assert_port_is_free(tester.port)


async def test_idle_butler_with_open_streams_stops(
    tester: InProcessButler, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        for connect in clients.ALL:
            client = await stack.enter_async_context(connect(tester.butler.url, tester.owner_token))
            await client.call("quick", {})
        await tester.butler.stop()
    assert_port_is_free(tester.port)
    assert_ended_in_order(caplog)


async def test_butler_restarts_on_its_existing_data(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        await owner.call("write", {"text": "before"})
    await tester.butler.stop()
    assert not (tester.home / "run" / "tester.json").exists()

    await tester.start()
    async with tester.owner() as owner:
        await owner.call("write", {"text": "after"})
    assert [row["text"] for row in await tester.rows("SELECT text FROM entries ORDER BY 1")] == [
        "after",
        "before",
    ]


# -- from the first refusal to the pool ----------------------------------------------------------------


@pytest.fixture
async def waiting_butler(
    tmp_path: Path, home: Path, key: FleetKey, provisioner: Provisioner, database_name: str
) -> AsyncIterator[Butler]:
    """A butler with three modules whose sessions wait for the test, and a clock set by the test."""
    write_waiting_butler(tmp_path / "postbox", database_name, AT_NINE)
    butler = Butler(
        load_config(tmp_path / "postbox"),
        settings=Settings(home),
        key=key,
        provisioner=provisioner,
        clock=SetClock(NINE.replace(hour=8)),
    )
    await butler.start()
    yield butler
    await butler.stop()


async def until_new_calls_are_rejected(butler: Butler, token: str) -> None:
    async with clients.fastmcp_modern(butler.url, token) as owner:

        async def refused() -> bool:
            answer = await owner.call("state_list", {})
            return "error" in answer and answer["error"]["code"] == "shutting_down"

        stopping = asyncio.create_task(butler.stop())
        await until("the butler to refuse", refused)
    for connect in clients.SHAKING_HANDS:
        assert "shutting down" in await clients.refusal(connect, butler.url, token)
    assert not stopping.done()


def ends_of(logs: list[Any]) -> list[str]:
    """Return the modules and the pool in the order in which the log says they stopped."""
    wanted = ("module shutdown", "database pool closed")
    return [
        " ".join(filter(None, (line["event"], line.get("module"))))
        for line in logs
        if line["event"] in wanted
    ]


@pytest.mark.scenario("S002-37")
async def test_stop_waits_for_sessions_then_stops_modules_and_pool(
    waiting_butler: Butler, admin: Login
) -> None:
    token = waiting_butler.key.mint(CallerKind.OWNER, "owner", "postbox")
    async with (
        held_locks(admin, waiting_butler.config.db.name, 1) as locks,
        clients.mcp_streamable(waiting_butler.url, token) as owner,
    ):
        session = asyncio.create_task(owner.call("trigger", {"prompt": "wait for lock 1"}))
        await locks.until_waiting(1)
        with capture_logs() as logs:
            await until_new_calls_are_rejected(waiting_butler, token)
            assert (session.done(), ends_of(logs)) == (False, [])

            await locks.release(1)
            assert (await session)["output"] == "Lock 1 is free."
            await until("the end", lambda: logs[-1]["event"] == "shutdown complete")
    assert ends_of(logs) == ENDS
    assert waiting_butler.database.pool.is_closing()
    assert_port_is_free(waiting_butler.endpoint.port)


@pytest.mark.scenario("S001-05")
async def test_sessions_share_one_time_limit_and_parts_stop_in_reverse_order(
    waiting_butler: Butler, admin: Login
) -> None:
    """The clock of the test is put on beyond the limit while the first session is waited for. So the
    second, whose turn comes after, gets no time of its own; it would have had an hour."""
    token = waiting_butler.key.mint(CallerKind.OWNER, "owner", "postbox")
    background = ["heartbeat", "scheduler", "registrar"]  # in the order of their start
    tasks = {task.get_name().removeprefix("postbox:"): task for task in asyncio.all_tasks()}
    ended: list[str] = []
    for name in background:
        tasks[name].add_done_callback(lambda _task, name=name: ended.append(name))
    clock = waiting_butler.clock
    assert isinstance(clock, SetClock)

    async with (
        held_locks(admin, waiting_butler.config.db.name, 1, 2) as locks,
        clients.mcp_streamable(waiting_butler.url, token) as owner,
    ):
        stuck = asyncio.create_task(owner.call("trigger", {"prompt": "wait for lock 1"}))
        clock.at = NINE
        await waiting_butler.service(Scheduler).tick()
        await locks.until_waiting(1, 2)
        with capture_logs() as logs:
            await until_new_calls_are_rejected(waiting_butler, token)
            await until("the background to end", lambda: len(ended) == len(background))
            assert ended == background[::-1]
            assert (stuck.done(), ends_of(logs)) == (False, [])

            clock.move(seconds=3601)
            await locks.release(2)
            await until("the end", lambda: logs[-1]["event"] == "shutdown complete")
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
    ends = [line for line in logs if line["event"] == "session ended"]
    assert [(line["trigger"], line["outcome"]) for line in ends] == [
        ("schedule:nine", "ok"),
        ("trigger", "cancelled"),
    ]
    (warning,) = (
        line for line in logs if line["event"] == "calls and sessions did not end in time"
    )
    assert (warning["log_level"], warning["sessions"]) == ("warning", 1)
    assert ends_of(logs) == ENDS
    assert waiting_butler.database.pool.is_closing()


@pytest.mark.parametrize("line", ["shutdown_timeout_s = 7", "shutdown.timeout_s = 7"])
async def test_shutdown_time_limit_comes_from_the_config(
    make_butler: MakeButler, line: str
) -> None:
    assert (await make_butler(extra=line).start()).grace_s == 7
