"""SIGKILL of the Messenger around a delivery and around an approval: counted at the receiving end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from butlers.domain.errors import ButlersError
from support.fleet import wait_for
from support.webhook_fleet import APPROVED, WebhookFleet, webhook_fleet
from support.webhook_server import status

BEFORE = ("deliver.before_commit", "deliver.committed", "deliveries.claimed")
AFTER = ("deliveries.handled", "deliveries.completed")
BUSY = status(429, "not now", Retry_After="1")
POINTS = (*BEFORE, "deliveries.sending", "deliveries.sent", *AFTER)


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[WebhookFleet]:
    with webhook_fleet(template_home, approved=APPROVED) as running:
        yield running


def kill_there(fleet: WebhookFleet, point: str) -> None:
    fleet.stop("messenger")
    fleet.start("messenger", BUTLERS_KILL_POINT=point)
    fleet.wait_healthy("messenger")


def restart(fleet: WebhookFleet) -> None:
    fleet.wait_killed("messenger")
    fleet.start("messenger")
    fleet.wait_healthy("messenger")


def settled(fleet: WebhookFleet) -> bool:
    return fleet.settled("health", "messenger")


@pytest.mark.parametrize("point", POINTS)
def test_a_channel_that_might_double_gets_it_at_most_once(fleet: WebhookFleet, point: str) -> None:
    kill_there(fleet, point)
    sent = fleet.notify("plain:anna", f"killed at {point}")
    restart(fleet)

    found = fleet.wait_state(sent, "delivered", "unknown")
    wait_for("every queue to be empty", lambda: settled(fleet))
    arrived = fleet.server.times.get(str(sent), 0)
    expected = {"deliveries.sending": ("unknown", 0), "deliveries.sent": ("unknown", 1)}
    assert (found["state"], arrived) == expected.get(point, ("delivered", 1))
    if found["state"] == "unknown":
        assert_told_and_not_sent_again(fleet, str(sent), arrived)


def assert_told_and_not_sent_again(fleet: WebhookFleet, sent: str, arrived: int) -> None:
    told = "SELECT count(*) FROM messenger.console_mailbox WHERE message LIKE '%' || $1 || '%'"
    wait_for("the owner to be told", lambda: fleet.rows(told, sent)[0][0])
    fleet.stop("messenger")
    fleet.start("messenger")
    fleet.wait_healthy("messenger")
    wait_for("every queue to be empty", lambda: settled(fleet))
    assert fleet.rows(told, sent)[0][0] == 1
    assert fleet.server.times.get(sent, 0) == arrived


@pytest.mark.parametrize("point", ["deliveries.sending", "deliveries.sent"])
def test_a_channel_that_takes_a_key_once_gets_it_for_certain(
    fleet: WebhookFleet, point: str
) -> None:
    kill_there(fleet, point)
    sent = fleet.notify("sure:anna", f"killed at {point}")
    restart(fleet)

    found = fleet.wait_state(sent, "delivered")
    assert found["provider_message_id"] == fleet.server.messages[str(sent)]
    assert fleet.server.times[str(sent)] <= 2  # the same key, so one message there


@pytest.mark.parametrize("hook", ["plain", "sure"])
@pytest.mark.parametrize("point", ["deliveries.failed", "deliveries.failure_kept"])
def test_killed_as_a_failed_attempt_is_written_down_it_arrives_once_or_is_unknown(
    fleet: WebhookFleet, hook: str, point: str
) -> None:
    kill_there(fleet, point)
    fleet.server.script(BUSY)
    sent = fleet.notify(f"{hook}:anna", f"killed at {point}")
    restart(fleet)

    found = fleet.wait_state(sent, "delivered", "unknown")
    wait_for("every queue to be empty", lambda: settled(fleet))
    # That the receiver did not want it is known only where that was written down.
    lost = (hook, point) == ("plain", "deliveries.failed")
    arrived = fleet.server.times.get(str(sent), 0)
    assert (found["state"], arrived) == (("unknown", 0) if lost else ("delivered", 1))
    if lost:
        assert_told_and_not_sent_again(fleet, str(sent), arrived)


def test_killed_after_a_refusal_was_written_down_it_is_not_sent_again(fleet: WebhookFleet) -> None:
    kill_there(fleet, "deliveries.failure_kept")
    before = len(fleet.server.requests)
    fleet.server.script(status(400))
    sent = fleet.notify("plain:anna", "refused, and killed")
    restart(fleet)

    fleet.wait_state(sent, "failed")
    wait_for("every queue to be empty", lambda: settled(fleet))
    assert_told_and_not_sent_again(fleet, str(sent), arrived=0)
    assert len(fleet.server.requests) == before + 1


@pytest.mark.parametrize("point", ["before_commit", "committed"])
def test_an_approval_that_was_cut_off_delivers_once(fleet: WebhookFleet, point: str) -> None:
    parked = fleet.notify(f"plain:new-{point}", "may I?")
    action = fleet.question(parked)
    kill_there(fleet, f"approve_action.{point}")
    decide = {"action_id": action}
    with ThreadPoolExecutor(1) as pool:
        cut_off = pool.submit(fleet.call, "messenger", "approve_action", decide)
        restart(fleet)
        assert isinstance(cut_off.exception(), ButlersError)
    if point == "before_commit":
        assert fleet.wait_state(parked, "parked")
    fleet.call("messenger", "approve_action", decide)  # the person tries again

    fleet.wait_state(parked, "delivered")
    wait_for("every queue to be empty", lambda: settled(fleet))
    assert fleet.server.times[str(parked)] == 1
