"""Incidents of other systems, repeated on a fleet of real processes. ``docs/incidents.md`` lists all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.caller import CallerKind
from butlers.wire import directory
from butlers.wire.client import McpClient
from butlers.wire.tokens import FleetKey
from support.fleet import wait_for
from support.webhook_fleet import WebhookFleet, webhook_fleet
from support.webhook_server import HANG

CRASHES = ("session.opened", "measurement_log.committed", "notify.committed")
TIMES = 82


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[WebhookFleet]:
    with webhook_fleet(template_home) as running:
        yield running


def count(fleet: WebhookFleet, where: str, *arguments: object) -> int:
    return int(fleet.rows(f"SELECT count(*) FROM {where}", *arguments)[0][0])


def test_one_message_is_one_answer_however_often_it_comes_and_whatever_crashes(
    fleet: WebhookFleet,
) -> None:
    """Elsewhere one email became 82 sessions in nineteen hours."""
    fleet.stop("health")
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: fleet.say("sure", "mail-1", "pulse 82"), range(TIMES)))
    (request_id,) = {one["request_id"] for one in taken}
    assert [one["duplicate"] for one in taken].count(False) == 1
    for point in CRASHES:
        fleet.start("health", BUTLERS_KILL_POINT=point)
        fleet.wait_killed("health")
    fleet.start("health")
    wait_for("the answer", fleet.answers)
    for answer in route_again(fleet, request_id, TIMES):
        assert answer == {"status": "accepted", "duplicate": True}
    assert fleet.say("sure", "mail-1", "pulse 82")["duplicate"]
    wait_for("every queue to be empty", lambda: fleet.settled("health"))

    assert fleet.answers() == [("mail-1", "Logged: pulse 82 bpm.")]
    assert count(fleet, "health.measurements WHERE value = 82") == 1
    sessions = "health.sessions WHERE request_id = $1::text::uuid"
    assert count(fleet, sessions, request_id) == len(CRASHES) + 1


def route_again(fleet: WebhookFleet, request_id: str, times: int) -> list[Any]:
    """Repeat a route, like a Switchboard that never got the answer that the route was accepted."""
    stored = "SELECT payload FROM health.queue_items WHERE queue = 'routes' AND key = $1"
    route = json.loads(fleet.rows(stored, request_id)[0]["payload"])
    token = FleetKey.load(fleet.home).mint(CallerKind.PEER, "switchboard", "health")
    entry = directory.find(fleet.home, "health")

    async def ask() -> list[Any]:
        async with McpClient("health", entry.url, lambda: token) as client:
            return [await client.call("route.execute", {"route": route}) for _ in range(times)]

    return asyncio.run(ask())


def test_a_planned_restart_in_the_middle_is_no_attempt(fleet: WebhookFleet) -> None:
    """Elsewhere restarts used up the attempts of what they interrupted."""
    fleet.server.script(HANG)
    before = len(fleet.server.requests)
    fleet.say("sure", "restart", "pulse 83")
    wait_for("it to be sent", lambda: len(fleet.server.requests) > before)
    key = fleet.server.requests[-1].key
    item = (
        "SELECT state, attempts FROM messenger.queue_items WHERE queue = 'deliveries' AND key = $1"
    )
    assert tuple(fleet.rows(item, key)[0]) == ("leased", 1)
    assert fleet.stop("messenger") == 0
    assert tuple(fleet.rows(item, key)[0]) == ("ready", 0)
    fleet.start("messenger")
    wait_for("it to be done", lambda: fleet.rows(item, key)[0]["state"] == "done")
    assert fleet.rows(item, key)[0]["attempts"] == 1
    assert fleet.server.messages[key]
