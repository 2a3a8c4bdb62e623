"""Shutdown loses no running call, refuses new ones by name, and comes to an end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

from butlers.daemon.ports import bind_port, hold_port
from butlers.domain.errors import PeerUnavailable, ShuttingDown
from integration.daemon import clients
from integration.daemon.house import House, MakeHouse, until

GENERATIONS = (clients.ours, clients.mcp_streamable, clients.mcp_sse)  # one of each transport
SHORT = "[butler.shutdown]\ntimeout_s = 0.2\n"


def assert_port_is_free(port: int) -> None:
    with bind_port(port, patience_s=0) as again:
        hold_port(again)


def assert_ended_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """The server says so when it had to cancel a stream, or when one was cut off."""
    assert [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.ERROR] == []


async def until_refusing(house: House) -> None:
    """Until the shutdown has begun to refuse those who come from outside."""
    async with house.owner() as owner:

        async def refused() -> bool:
            try:
                await owner.call("quick")
            except ShuttingDown:
                return True
            return False

        await until("the butler to refuse", refused)


async def test_running_calls_of_every_client_get_their_results(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    url, token, port = house.butler.url, house.owner_token, house.port
    async with AsyncExitStack() as stack:
        connected = {
            connect.__name__: await stack.enter_async_context(connect(url, token))
            for connect in clients.ALL
        }
        for connect in clients.ALL:  # standing streams on which nothing runs
            await stack.enter_async_context(connect(url, token))
        calls = {
            name: asyncio.create_task(client.call("slow", {"label": name}))
            for name, client in connected.items()
        }
        await house.until_running(*connected)

        stopping = asyncio.create_task(house.butler.stop())
        await until_refusing(house)
        assert not any(call.done() for call in calls.values())
        house.open_gate()

        for name, call in calls.items():
            assert await call == {"label": name}
        await stopping
        assert_port_is_free(port)
    assert_ended_in_order(caplog)


async def test_new_calls_are_refused_by_name_while_old_ones_run(house: House) -> None:
    async with house.owner() as owner, house.peer("switchboard") as peer:
        running = asyncio.create_task(owner.call("slow", {"label": "last"}))
        await house.until_running("last")
        stopping = asyncio.create_task(house.butler.stop())
        await until_refusing(house)

        for outsider in (owner, peer):
            with pytest.raises(ShuttingDown) as refused:
                await outsider.call("quick")
            assert refused.value.retryable
            assert refused.value.hint
        async with house.session() as session:  # it has to finish what a running call waits for
            assert (await session.call("quick"))["caller"] == "session"

        house.open_gate()
        assert await running == {"label": "last"}
        await stopping
        with pytest.raises(PeerUnavailable):
            await owner.call("quick")
    assert_port_is_free(house.port)


async def test_clients_of_older_protocols_are_told_the_same(house: House) -> None:
    async with (
        clients.mcp_sse(house.butler.url, house.owner_token) as sse,
        clients.mcp_streamable(house.butler.url, house.owner_token) as streamable,
    ):
        running = asyncio.create_task(sse.call("slow", {"label": "last"}))
        await house.until_running("last")
        stopping = asyncio.create_task(house.butler.stop())
        await until_refusing(house)

        for client in (sse, streamable):
            error = (await client.call("quick", {}))["error"]
            assert (error["code"], error["retryable"]) == ("shutting_down", True)

        house.open_gate()
        assert await running == {"label": "last"}
        await stopping


async def test_a_running_trigger_may_still_start_its_session(house: House) -> None:
    """One session at a time: the second waits for its turn, which comes during the shutdown."""
    async with house.owner() as owner:
        first = asyncio.create_task(owner.call("trigger", {"prompt": "wait for one"}))
        await house.until_running("one")
        second = asyncio.create_task(owner.call("trigger", {"prompt": "keep two"}))
        await until("both to be in flight", lambda: house.butler.in_flight.count == 3 or None)

        stopping = asyncio.create_task(house.butler.stop())
        await until_refusing(house)
        house.open_gate()

        assert (await first)["output"] == "Waited for one."
        assert (await second)["output"] == "Kept: two as number 1."
        await stopping
    assert await house.count("entries") == 1


async def test_a_committed_write_is_answered_before_the_end(house: House) -> None:
    async with house.owner() as owner:
        running = asyncio.create_task(owner.call("slow_write", {"label": "kept"}))
        await house.until_running("kept")
        stopping = asyncio.create_task(house.butler.stop())
        await until_refusing(house)
        house.open_gate()
        assert await running == {"label": "kept"}
        await stopping
    assert await house.count("entries") == 1


@pytest.mark.parametrize("tool", ["slow", "slow_write"])
@pytest.mark.parametrize("connect", GENERATIONS, ids=lambda connect: connect.__name__)
async def test_a_call_that_never_ends_does_not_hold_the_shutdown(
    make_house: MakeHouse, connect: clients.Connect, tool: str
) -> None:
    house = make_house(extra=SHORT)
    await house.start()

    async def hang() -> None:
        async with connect(house.butler.url, house.owner_token) as client:
            await client.call(tool, {"label": "stuck"})

    call = asyncio.create_task(hang())
    await house.until_running("stuck")
    await house.butler.stop()

    assert house.bench().running == []  # it was ended, not left behind
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await house.count("entries") == 0
    assert_port_is_free(house.port)


async def test_an_idle_butler_with_standing_streams_stops(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as stack:
        for connect in clients.ALL:
            client = await stack.enter_async_context(connect(house.butler.url, house.owner_token))
            await client.call("quick", {})
        await house.butler.stop()
    assert_port_is_free(house.port)
    assert_ended_in_order(caplog)


async def test_it_can_be_started_again_on_what_it_left(house: House) -> None:
    async with house.owner() as owner:
        await owner.call("write", {"text": "before"})
    await house.butler.stop()
    assert not (house.home / "run" / "tester.json").exists()

    await house.start()
    async with house.owner() as owner:
        await owner.call("write", {"text": "after"})
    assert [row["text"] for row in await house.rows("SELECT text FROM entries ORDER BY 1")] == [
        "after",
        "before",
    ]
