"""A channel that takes a message and then does not answer: it is unknown, told once, never sent again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support.fleet import wait_for
from support.webhook_fleet import WebhookFleet, webhook_fleet
from support.webhook_server import HANG

TOLD = "SELECT count(*) FROM messenger.console_mailbox WHERE message LIKE '%' || $1 || '%'"


@pytest.fixture
def fleet(template_home: Path) -> Iterator[WebhookFleet]:
    with webhook_fleet(template_home) as running:
        yield running


def test_uncertain_delivery_is_reported_once_and_not_resent(fleet: WebhookFleet) -> None:
    fleet.server.script(HANG)
    request_id = fleet.say("plain", "event-1", "pulse 61")["request_id"]
    arrived = wait_for("the message to arrive", lambda: fleet.server.requests[:1])[0]
    fleet.wait_state(UUID(arrived.key), "unknown")
    assert_shown(fleet, arrived.key, request_id)
    wait_for("the owner to be told", lambda: fleet.rows(TOLD, arrived.key)[0][0])

    fleet.kill("messenger")
    fleet.start("messenger")
    fleet.wait_healthy("messenger")
    fleet.say("plain", "event-2", "pulse 62")
    wait_for("the next one to be answered", lambda: len(fleet.answers()) == 2)
    wait_for("every queue to be empty", lambda: settled(fleet))

    assert [one.key for one in fleet.server.requests].count(arrived.key) == 1
    assert fleet.rows(TOLD, arrived.key)[0][0] == 1
    assert_shown(fleet, arrived.key, request_id)


def assert_shown(fleet: WebhookFleet, delivery_id: str, request_id: str) -> None:
    (listed,) = json.loads(printed(fleet, "deliveries", "list", "--state", "unknown", "--json"))
    assert listed["delivery_id"] == delivery_id
    traced = printed(fleet, "trace", request_id).splitlines()
    (sent,) = (line for line in traced if line.split()[2:4] == ["messenger", "delivery"])
    assert "unknown" in sent


def printed(fleet: WebhookFleet, *arguments: str) -> Any:
    done = fleet.butlers(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def settled(fleet: WebhookFleet) -> bool:
    return fleet.settled("switchboard", "health", "messenger")
