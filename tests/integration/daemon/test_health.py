"""Health of a butler: healthy, degraded by an invalid file, degraded without its database."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from butlers.db.database import Login
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.provision import Provisioner
from butlers.domain.clock import uuid7
from butlers.domain.errors import DatabaseUnavailable
from butlers.domain.session import SessionRequest
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey
from support import mcp_clients as clients
from support.clocks import SetClock
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler, MakeButler
from support.messages import envelope
from support.tester_folder import copy_roster, write_tester, write_versions
from support.waiting import until

BROKEN = r"""
version = 1

[[reflex]]
name = "good-one"
pattern = 'good'
reply = "good"

[[reflex]]
name = "bad-one"
pattern = 'bad (?P<x>'
reply = "bad"
"""


async def health(tester: InProcessButler) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        answer = await http.get(f"http://127.0.0.1:{tester.port}/health")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_health_route_and_status_tool_report_a_healthy_butler(
    tester: InProcessButler,
) -> None:
    async with tester.owner() as owner:
        said = await owner.call("status")
    for state in (await health(tester), said):
        assert state["name"] == "tester"
        assert state["description"] == "A butler for tests."
        assert state["role"] == "domain"
        assert (state["health"], state["phase"]) == ("healthy", "ready")
        assert state["database"] == "connected"
        assert state["modules"] == ["bench"]
        assert state["runtime"] == "reflex"
        assert state["queues"] == {}
        assert state["diagnostics"] == []
        assert state["uptime_s"] >= 0


@pytest.mark.scenario("S002-42")
async def test_uptime_counts_the_seconds_since_the_butler_was_ready(
    make_butler: MakeButler,
) -> None:
    tester = make_butler()
    clock = SetClock(datetime(2026, 5, 13, 9, tzinfo=UTC))
    butler = tester.make(clock=clock)
    await butler.start()
    async with clients.fastmcp_modern(butler.url, tester.owner_token) as client:
        assert (await client.call("status", {}))["uptime_s"] == 0
        clock.move(seconds=300)
        assert (await client.call("status", {}))["uptime_s"] == 300
    assert (await health(tester))["uptime_s"] == 300


async def test_health_shows_queue_depths(tester: InProcessButler) -> None:
    async with tester.session(uuid7()) as session:
        await session.call("notify", {"message": "hello"})
    state = await health(tester)
    assert state["queues"] == {"notify": {"ready": 1}}


async def test_invalid_reflex_file_is_reported_and_the_others_work(make_butler: MakeButler) -> None:
    tester = make_butler()
    file = tester.directory / "skills" / "broken" / "reflex.toml"
    file.parent.mkdir()
    file.write_text(BROKEN)

    with capture_logs() as logs:
        await tester.start()

    (logged,) = [entry for entry in logs if entry["event"] == "skill disabled"]
    async with tester.owner() as owner:
        said = await owner.call("status")
        for state in (await health(tester), said):
            assert state["health"] == "degraded"
            assert state["database"] == "connected"
            (found,) = state["diagnostics"]
            assert found["file"] == str(file.relative_to(tester.directory))
            assert found["entry"] == "bad-one"
            assert (found["line"], found["column"]) == (11, 11)
            assert found["severity"] == "error"
            assert found["message"]
            assert {key: logged[key] for key in found} == {**found, "file": str(file)}
        assert logged["log_level"] == "warning"

        # Its skill is disabled as a whole, the other skill is not.
        assert (await owner.call("trigger", {"prompt": "good"}))["outcome"] == "no-match"
        assert (await owner.call("trigger", {"prompt": "ping"}))["output"] == "pong"


@pytest.mark.scenario("S000-17")
async def test_wrong_name_of_a_skill_folder_is_reported(make_butler: MakeButler) -> None:
    tester = make_butler()
    folder = tester.directory / "skills" / "Morning_Briefing"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: x\ndescription: Plans the day.\n---\nPlan.\n")

    with capture_logs() as logs:
        await tester.start()

    assert [entry["file"] for entry in logs if entry["event"] == "skill problem"] == [str(folder)]
    (found,) = (await health(tester))["diagnostics"]
    assert (found["code"], found["severity"]) == ("folder-name", "error")
    assert found["hint"] == "rename it to morning-briefing"


# -- the database goes away ------------------------------------------------------------------------


@pytest.fixture
async def server(home: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A database server for this test, which keeps what is committed."""
    own = EmbeddedPostgres(home)
    await asyncio.to_thread(own.acquire)
    yield own
    await asyncio.to_thread(own.release)


def make(
    roster: str | None, server: EmbeddedPostgres, tmp_path: Path, home: Path
) -> InProcessButler:
    key = FleetKey(os.urandom(32))
    admin = Login(server.dsn(), "postgres", None, "postgres")
    directory, versions = tmp_path / "butler", tmp_path / "versions"
    if roster is None:
        write_tester(directory, "tests")
    else:
        copy_roster(roster, directory, "tests")
    write_versions(versions)
    return InProcessButler(directory, home, key, Provisioner(admin, key), versions)


def kill(server: EmbeddedPostgres) -> None:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.scenario("S002-43")
async def test_butler_survives_a_database_restart(
    server: EmbeddedPostgres, tmp_path: Path, home: Path
) -> None:
    tester = make(None, server, tmp_path, home)
    await tester.start()
    try:
        async with tester.owner() as owner:
            await owner.call("write", {"text": "before"})
            well = await owner.call("status")
            assert (well["health"], well["database"]) == ("healthy", "connected")
            assert [module["health"] for module in well["module_states"]] == ["active"]
            kill(server)

            async def degraded() -> dict[str, Any] | None:
                state = await health(tester)
                return state if state["database"] == "unreachable" else None

            state = await until("the loss to be noticed", degraded)
            assert (state["health"], state["phase"]) == ("degraded", "ready")
            assert state["queues"] is None
            said = await owner.call("status")
            assert (said["health"], said["database"]) == ("degraded", "unreachable")

            for _attempt in range(3):
                with pytest.raises(DatabaseUnavailable) as refused:
                    await owner.call("write", {"text": "refused"})
                assert refused.value.retryable
                assert refused.value.code == "database_unavailable"
                assert refused.value.hint

            assert await asyncio.to_thread(server.ensure_running)

            async def written() -> dict[str, Any] | None:
                try:
                    answer: dict[str, Any] = await owner.call("write", {"text": "after"})
                except DatabaseUnavailable:
                    return None
                return answer

            await until("calls to succeed again", written)
        assert (await health(tester))["health"] == "healthy"
        rows = await tester.rows("SELECT text FROM entries ORDER BY number")
        assert [row["text"] for row in rows] == ["before", "after"]
    finally:
        await tester.close()


async def test_call_interrupted_by_a_database_crash_is_retryable(
    server: EmbeddedPostgres, tmp_path: Path, home: Path
) -> None:
    tester = make(None, server, tmp_path, home)
    await tester.start()
    request_id = uuid7()
    try:
        async with tester.session(request_id) as session:
            running = asyncio.create_task(session.call("slow_write", {"label": "once"}))
            await tester.until_running("once")
            kill(server)
            await until("the server to be gone", lambda: server.pid is None)
            tester.open_gate()
            with pytest.raises(DatabaseUnavailable) as refused:
                await running
            assert refused.value.retryable
        await asyncio.to_thread(server.ensure_running)

        async def repeated() -> Any:
            async with tester.session(request_id) as session:
                try:
                    return await session.call("slow_write", {"label": "once"})
                except DatabaseUnavailable:
                    return None

        assert await until("the repeat to succeed", repeated) == {"label": "once"}
        assert await tester.count("entries") == 1
        assert await tester.count("call_journal") == 1
    finally:
        await tester.close()


async def test_session_ended_during_a_database_outage_is_closed_afterwards(
    server: EmbeddedPostgres, tmp_path: Path, home: Path
) -> None:
    tester = make(None, server, tmp_path, home)
    butler = await tester.start()

    async def think(butler: McpClient) -> str:
        await butler.list_tools()
        kill(server)
        await until("the server to be gone", lambda: server.pid is None)
        return "done all the same"

    butler.spawner.model = FakeRuntime(think)
    try:
        result = await butler.spawner.run(SessionRequest(uuid7(), "think", "trigger"))
        assert result.text == "done all the same"
        await asyncio.to_thread(server.ensure_running)

        async def closed() -> list[dict[str, Any]] | None:
            return (
                await tester.rows("SELECT output FROM sessions WHERE outcome IS NOT NULL") or None
            )

        (row,) = await until("its row to be closed", closed)
        assert row["output"] == "done all the same"
    finally:
        await tester.close()


async def test_butler_stops_while_the_database_is_down(
    server: EmbeddedPostgres, tmp_path: Path, home: Path
) -> None:
    tester = make(None, server, tmp_path, home)
    butler = await tester.start()
    kill(server)
    await until("the server to be gone", lambda: server.pid is None)
    await butler.stop()
    assert butler.phase == "stopping"
    assert not (home / "run" / "tester.json").exists()


async def test_switchboard_without_database_rejects_messages_and_loses_none(
    server: EmbeddedPostgres, tmp_path: Path, home: Path
) -> None:
    tester = make("switchboard", server, tmp_path, home)
    await tester.start()
    first, second = envelope("one"), envelope("two")
    try:
        async with tester.owner() as owner:
            await owner.call("ingest", first)
            kill(server)
            await until("the server to be gone", lambda: server.pid is None)
            with pytest.raises(DatabaseUnavailable):
                await owner.call("ingest", second)
            await asyncio.to_thread(server.ensure_running)

            async def taken() -> Any:
                try:
                    return await owner.call("ingest", second)
                except DatabaseUnavailable:
                    return None

            assert (await until("the retry to be taken", taken))["duplicate"] is False
            assert (await owner.call("ingest", first))["duplicate"] is True
        assert await tester.rows("SELECT text FROM message_inbox ORDER BY received_at") == [
            {"text": "one"},
            {"text": "two"},
        ]
        assert await tester.count("queue_items") == 2
    finally:
        await tester.close()
