"""A database that lacks disk space, memory or a lock: the work waits, and is done when there is room."""

from __future__ import annotations

import errno
import json
from collections import namedtuple
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from butlers.daemon import health
from butlers.daemon.health import disk_warning
from butlers.db.database import FAULT_SHOWN_S
from butlers.domain.errors import DatabaseExhausted, DatabaseUnavailable
from butlers.domain.message import RouteDecision, RouteRequest
from butlers.sessions.routes import accept_route
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler
from support.messages import envelope, request_context
from support.waiting import until

FAULTS = {
    "disk_full": "53100",
    "out_of_memory": "53200",
    "too_many_connections": "53300",
    "read_only_sql_transaction": "25006",
    "deadlock_detected": "40P01",
    "serialization_failure": "40001",
    "admin_shutdown": "57P01",
    "io_error": "58030",
    "lock_not_available": "55P03",
}


@asynccontextmanager
async def failing(tester: InProcessButler, table: str, code: str) -> AsyncIterator[None]:
    """Let inserts into a table fail as PostgreSQL fails them."""
    place = tester.butler.config.db
    connection = await asyncpg.connect(
        **{**tester.provisioner.admin.arguments("tests"), "database": place.name}
    )
    try:
        await connection.execute(f'SET search_path = "{place.schema or "public"}"')
        await connection.execute(
            "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{code}'; END $$"
        )
        await connection.execute(
            f"CREATE TRIGGER fails BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fail()"
        )
        yield
    finally:
        await connection.execute(f"DROP TRIGGER IF EXISTS fails ON {table}")
        await connection.close()


async def waiting(tester: InProcessButler, queue: str) -> str:
    async def error() -> str | None:
        rows = await tester.rows(
            "SELECT error FROM queue_items WHERE queue = $1 AND state = 'ready' AND error IS NOT NULL",
            queue,
        )
        return rows[0]["error"] if rows else None

    return await until("the item to wait", error)


@pytest.mark.parametrize("code", FAULTS.values(), ids=FAULTS.keys())
async def test_fault_of_the_database_is_retryable(tester: InProcessButler, code: str) -> None:
    async with failing(tester, "entries", code), tester.session() as session:
        with pytest.raises(DatabaseUnavailable) as met:
            await session.call("write", {"text": "milk"})
        assert met.value.retryable
    async with tester.session() as session:
        assert (await session.call("write", {"text": "milk"}))["text"] == "milk"


async def test_apology_of_a_session_is_not_the_answer(tester: InProcessButler) -> None:
    """The tool failed for the disk, so the message waits and is carried out when there is space."""

    async def think(butler: McpClient) -> str:
        try:
            await butler.call("write", {"text": "milk"})
        except DatabaseUnavailable as error:
            return f"I am sorry: {error}"
        return "It is written."

    tester.butler.spawner.model = FakeRuntime(think)
    request = request_context()
    route = RouteRequest(request, "tester", "milk", RouteDecision("tester", "fallback", "test"))
    async with failing(tester, "entries", FAULTS["disk_full"]):
        async with tester.butler.database.transaction() as connection:
            await accept_route(connection, route)
        assert "DiskFullError" in await waiting(tester, "routes")
        state = await tester.status()
        assert (state["health"], state["database"]) == ("degraded", "exhausted")
        assert "could not extend file" in state["warnings"][0]

    async def replies() -> list[dict[str, Any]]:
        return await tester.rows("SELECT payload FROM queue_items WHERE queue = 'notify'")

    (reply,) = await until("the reply", replies)
    assert json.loads(reply["payload"])["message"] == "It is written."
    assert await tester.count("entries") == 1


async def test_door_asks_to_come_back(switchboard: InProcessButler) -> None:
    url = switchboard.butler.url.replace("/mcp", "/ingest")
    headers = {"Authorization": f"Bearer {switchboard.owner_token}"}
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        async with failing(switchboard, "message_inbox", FAULTS["disk_full"]):
            refused = await http.post(url, json=envelope(), headers=headers)
        assert (refused.status_code, refused.json()["error"]["retryable"]) == (503, True)
        assert refused.json()["error"]["code"] == "database_exhausted"
        assert refused.headers["retry-after"]
        accepted = await http.post(url, json=envelope(), headers=headers)
    assert accepted.status_code in (200, 202)


async def test_full_disk_of_our_own_files_is_retryable_too(tester: InProcessButler) -> None:
    with pytest.raises(DatabaseExhausted, match="the disk is full"):
        async with tester.butler.database.transaction():
            raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError):
        async with tester.butler.database.transaction():
            raise FileNotFoundError(errno.ENOENT, "a file of ours")


async def test_fault_is_forgotten_when_it_is_over(
    tester: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with failing(tester, "entries", FAULTS["disk_full"]), tester.session() as session:
        with pytest.raises(DatabaseUnavailable):
            await session.call("write", {"text": "milk"})
    assert tester.butler.database.fault is not None
    monkeypatch.setattr("butlers.db.database.FAULT_SHOWN_S", -FAULT_SHOWN_S)
    assert tester.butler.database.fault is None
    assert (await tester.status())["health"] == "healthy"


def test_warning_comes_before_the_disk_is_full(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    for free, warned in ((100 * 2**20, True), (300 * 2**20, False)):
        monkeypatch.setattr(
            health.shutil, "disk_usage", lambda _folder, free=free: usage(10 * 2**30, 0, free)
        )
        assert (disk_warning(tmp_path) is not None) is warned
