"""SIGKILL of a real process at each hop: after a restart each message of a conversation is answered once.

Messages come in and answers go out over signed webhooks, and the answers are counted at the receiving end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.fleet import wait_for
from support.webhook_fleet import WebhookFleet, webhook_fleet

POINTS = {
    "switchboard": (
        "door.before_commit",
        "door.committed",
        "inbox.claimed",
        "inbox.decided",
        "inbox.routed",
        "inbox.handled",
        "inbox.completed",
        "deliver.before_commit",
        "deliver.committed",
        "deliveries.claimed",
        "deliveries.handled",
        "deliveries.completed",
    ),
    "health": (
        "route.execute.before_commit",
        "route.execute.committed",
        "routes.claimed",
        "session.opened",
        "measurement_log.before_commit",
        "measurement_log.committed",
        "notify.before_commit",
        "notify.committed",
        "routes.handled",
        "routes.completed",
        "notify.claimed",
        "notify.handled",
        "notify.completed",
    ),
    "messenger": (
        "deliver.before_commit",
        "deliver.committed",
        "deliveries.claimed",
        "deliveries.sending",
        "deliveries.sent",
        "deliveries.handled",
        "deliveries.completed",
    ),
}
CASES = [(butler, point) for butler, points in POINTS.items() for point in points]

MESSAGES = 4

_pulses = itertools.count(
    40
)  # a value of its own for each message, so that its rows can be counted


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[WebhookFleet]:
    with webhook_fleet(template_home) as running:
        yield running


@pytest.mark.parametrize(("butler", "point"), CASES, ids=[f"{b}-{p}" for b, p in CASES])
def test_message_is_answered_once_and_in_order_after_a_kill(
    fleet: WebhookFleet, butler: str, point: str
) -> None:
    thread = f"{butler}-{point}"
    said = {f"{thread}-{pulse}": pulse for pulse in itertools.islice(_pulses, MESSAGES)}

    def talk() -> None:
        for event, pulse in said.items():
            fleet.say("sure", event, f"pulse {pulse}", thread)

    with ThreadPoolExecutor(1) as pool:
        arm(fleet, butler, point)
        talking = pool.submit(talk)
        fleet.wait_killed(butler)
        fleet.start(butler)
        fleet.wait_healthy(butler)
        talking.result()

    wait_for("all answers", lambda: len(fleet.answers(thread)) >= MESSAGES)
    wait_for("every queue to be empty", lambda: all_settled(fleet))
    assert fleet.answers(thread) == [
        (event, f"Logged: pulse {pulse} bpm.") for event, pulse in said.items()
    ]
    for pulse in said.values():
        assert count(fleet, "health.measurements WHERE value = $1 AND type = 'pulse'", pulse) == 1
    assert dead_letters(fleet) == 0


@pytest.mark.parametrize("moment", ["before_commit", "committed"])
@pytest.mark.parametrize(
    ("away", "queue"), [("health", "inbox"), ("messenger", "deliveries")], ids=lambda word: word
)
def test_messages_for_an_unavailable_butler_survive_a_kill(
    fleet: WebhookFleet, away: str, queue: str, moment: str
) -> None:
    """The butler returns only after the Switchboard: nothing that waited is lost or doubled."""
    thread = f"{away}-{queue}-{moment}"
    said = {f"{thread}-{pulse}": pulse for pulse in itertools.islice(_pulses, MESSAGES)}
    fleet.stop(away)
    arm(fleet, "switchboard", f"{queue}.wait.{moment}")
    with ThreadPoolExecutor(1) as pool:
        talking = pool.submit(
            lambda: [
                fleet.say("sure", event, f"pulse {pulse}", thread) for event, pulse in said.items()
            ]
        )
        fleet.wait_killed("switchboard")
        fleet.start("switchboard")
        fleet.wait_healthy("switchboard")
        talking.result()
    fleet.start(away)
    fleet.wait_healthy(away)
    wait_for("all answers", lambda: len(fleet.answers(thread)) >= MESSAGES)
    wait_for("every queue to be empty", lambda: all_settled(fleet))
    assert fleet.answers(thread) == [
        (event, f"Logged: pulse {pulse} bpm.") for event, pulse in said.items()
    ]
    assert dead_letters(fleet) == 0


@pytest.mark.parametrize("point", ["ingest.before_commit", "ingest.committed"])
def test_console_message_has_one_row_and_one_reply_after_a_kill(
    fleet: WebhookFleet, point: str
) -> None:
    pulse = next(_pulses)
    arm(fleet, "switchboard", point)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(fleet.send, f"pulse {pulse}")  # waits out a killed Switchboard
        fleet.wait_killed("switchboard")
        fleet.start("switchboard")
        fleet.wait_healthy("switchboard")
        request_id = sending.result()
    assert [one.message for one in fleet.replies(request_id)] == [f"Logged: pulse {pulse} bpm."]
    wait_for("every queue to be empty", lambda: all_settled(fleet))
    assert count(fleet, "health.measurements WHERE value = $1 AND type = 'pulse'", pulse) == 1
    assert fleet.replies(request_id, timeout_s=0) == []
    assert dead_letters(fleet) == 0


def arm(fleet: WebhookFleet, butler: str, point: str) -> None:
    fleet.stop(butler)
    fleet.start(butler, BUTLERS_KILL_POINT=point)
    fleet.wait_healthy(butler)


def count(fleet: WebhookFleet, where: str, *arguments: object) -> int:
    return int(fleet.rows(f"SELECT count(*) FROM {where}", *arguments)[0][0])


def all_settled(fleet: WebhookFleet) -> bool:
    return fleet.settled(*POINTS)


def dead_letters(fleet: WebhookFleet) -> int:
    return sum(count(fleet, f"{schema}.queue_items WHERE state = 'dead'") for schema in POINTS)
