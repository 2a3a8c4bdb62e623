"""A butler as a process: its port, its log, and its end by a signal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from butlers.db.database import Login
from support import mcp_clients as clients
from support.butler_process import ButlerProcess
from support.mcp_clients import Connect
from support.waiting import until
from support.waiting_sessions import MODULES

ENDS_OF_MODULES = [f"module shutdown: {name}" for name in reversed(MODULES)]


@pytest.fixture
async def postbox(
    tmp_path: Path, home: Path, admin: Login, database_name: str
) -> AsyncIterator[ButlerProcess]:
    """A butler with its files, not started."""
    process = ButlerProcess(tmp_path / "postbox", home, admin, database_name)
    yield process
    process.close()


async def assert_nobody_listens(port: int) -> None:
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(f"http://127.0.0.1:{port}/health")


async def assert_nobody_is_let_in(postbox: ButlerProcess) -> None:
    for connect in clients.SHAKING_HANDS:
        said = await clients.refusal(connect, postbox.url, postbox.owner_token)
        assert "shutting down" in said


@pytest.mark.scenario("S002-25")
async def test_server_listens_on_the_configured_port(
    postbox: ButlerProcess,
) -> None:
    postbox.write()
    await postbox.start()
    assert (
        f"port = {postbox.port - postbox.slot.offset}\n"
        in (postbox.directory / "butler.toml").read_text()
    )
    by_sse: tuple[Connect, ...] = (clients.fastmcp_sse, clients.mcp_sse)
    for connect in (*by_sse, clients.fastmcp_modern, clients.mcp_streamable):
        async with connect(f"http://127.0.0.1:{postbox.port}/mcp", postbox.owner_token) as client:
            assert (await client.call("status", {}))["name"] == "postbox"


@pytest.mark.scenario("S002-27", "S002-44", "S002-45")
async def test_log_shows_each_step_of_start_and_shutdown(postbox: ButlerProcess) -> None:
    postbox.write()
    await postbox.start()
    begun = postbox.events
    steps = [
        "config loaded",
        "database connected",
        *(f"module initialized: {name}" for name in MODULES),
        "server started",
    ]
    assert [event for event in begun if event in steps] == steps
    (config,) = postbox.said("config loaded")
    assert (config["butler"], config["port"]) == ("postbox", postbox.port)
    (connected,) = postbox.said("database connected")
    assert connected["database"] == postbox.database
    applied = [(line["chain"], line["revision"]) for line in postbox.said("migration applied")]
    assert ("core", "core_001") in applied
    assert applied[-2:] == [("email", "email_001"), ("calendar", "calendar_001")]
    (server,) = postbox.said("server started")
    assert (server["butler"], server["port"]) == ("postbox", postbox.port)

    postbox.terminate()
    assert await postbox.ended() == 0
    assert postbox.events[len(begun) :] == [
        "shutdown initiated",
        *ENDS_OF_MODULES,
        "database pool closed",
        "shutdown complete",
    ]


@pytest.mark.scenario("S002-31")
async def test_signal_stops_an_idle_butler_in_order(postbox: ButlerProcess) -> None:
    postbox.write()
    await postbox.start()
    async with postbox.owner() as owner:  # an idle client
        await owner.call("status", {})
        postbox.terminate()
        assert await postbox.ended() == 0
    await assert_nobody_listens(postbox.port)
    ends = postbox.events[postbox.events.index("shutdown initiated") :]
    assert ends[1:] == [*ENDS_OF_MODULES, "database pool closed", "shutdown complete"]
    assert "Traceback" not in postbox.log


@pytest.mark.scenario("S002-32")
async def test_signal_waits_for_the_running_session(postbox: ButlerProcess) -> None:
    postbox.write()
    await postbox.start()
    async with postbox.held_locks(1) as locks, postbox.owner() as owner:
        session = asyncio.create_task(owner.call("trigger", {"prompt": "wait for lock 1"}))
        await locks.until_waiting(1)

        postbox.terminate()
        await postbox.until_said("shutdown initiated")
        await until("the butler to refuse", lambda: _is_refused(owner))
        await assert_nobody_is_let_in(postbox)
        assert not session.done()
        assert postbox.events[-1] == "shutdown initiated"  # no module has stopped

        await locks.release(1)
        assert (await session)["output"] == "Lock 1 is free."
        assert await postbox.ended() == 0
    ends = postbox.events[postbox.events.index("shutdown initiated") :]
    assert ends[1:] == [
        "session ended",
        *ENDS_OF_MODULES,
        "database pool closed",
        "shutdown complete",
    ]
    assert [line["outcome"] for line in postbox.said("session ended")] == ["ok"]
    await assert_nobody_listens(postbox.port)


async def _is_refused(owner: clients.ToolClient) -> bool:
    return (await owner.call("state_list", {})).get("error", {}).get("code") == "shutting_down"


@pytest.mark.scenario("S002-33")
async def test_session_beyond_the_time_limit_does_not_delay_the_exit(
    postbox: ButlerProcess,
) -> None:
    postbox.write("shutdown.timeout_s = 0.2")
    await postbox.start()
    async with postbox.held_locks(1) as locks:
        stuck = asyncio.create_task(_trigger(postbox))
        await locks.until_waiting(1)
        postbox.terminate()
        assert await postbox.ended() == 0
        await asyncio.gather(stuck, return_exceptions=True)
    (warning,) = postbox.said("calls and sessions did not end in time")
    assert (warning["level"], warning["sessions"]) == ("warning", 1)
    ends = postbox.events[postbox.events.index("shutdown initiated") :]
    assert ends.index(warning["event"]) < ends.index(ENDS_OF_MODULES[0])
    assert ends[-5:] == [*ENDS_OF_MODULES, "database pool closed", "shutdown complete"]
    assert [line["outcome"] for line in postbox.said("session ended")] == ["cancelled"]


async def _trigger(postbox: ButlerProcess) -> None:
    async with postbox.owner() as owner:
        await owner.call("trigger", {"prompt": "wait for lock 1"})
