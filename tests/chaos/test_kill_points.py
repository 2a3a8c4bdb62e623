"""SIGKILL of a real process at each hop of a message: after a restart there is one row and one reply."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.fleet import Fleet, wait_for

POINTS = {
    "switchboard": (
        "ingest.before_commit",
        "ingest.committed",
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

_pulses = itertools.count(40)  # a value of its own for each case, so that its rows can be counted


@pytest.mark.parametrize(("butler", "point"), CASES, ids=[f"{b}-{p}" for b, p in CASES])
def test_killed_there_and_restarted_it_is_one_row_and_one_reply(
    fleet: Fleet, butler: str, point: str
) -> None:
    pulse = next(_pulses)
    fleet.stop(butler)
    fleet.start(butler, BUTLERS_KILL_POINT=point)
    fleet.wait_healthy(butler)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(fleet.send, f"pulse {pulse}")  # waits out a killed Switchboard
        fleet.wait_killed(butler)
        fleet.start(butler)
        fleet.wait_healthy(butler)
        request_id = sending.result()

    replies = fleet.replies(request_id)
    assert [reply.message for reply in replies] == [f"Logged: pulse {pulse} bpm."]
    wait_for("every queue to be empty", lambda: all_settled(fleet))

    assert count(fleet, "health.measurements WHERE value = $1 AND type = 'pulse'", pulse) == 1
    assert count(fleet, "switchboard.message_inbox WHERE request_id = $1", request_id) == 1
    assert count(fleet, "messenger.deliveries WHERE request_id = $1", request_id) == 1
    assert count(fleet, "messenger.console_mailbox WHERE request_id = $1", request_id) == 1
    assert fleet.replies(request_id, timeout_s=0) == []
    assert dead_letters(fleet) == 0


def count(fleet: Fleet, where: str, *arguments: object) -> int:
    return int(fleet.rows(f"SELECT count(*) FROM {where}", *arguments)[0][0])


def all_settled(fleet: Fleet) -> bool:
    unsettled = "queue_items WHERE state IN ('ready', 'leased')"
    return not any(count(fleet, f"{schema}.{unsettled}") for schema in POINTS)


def dead_letters(fleet: Fleet) -> int:
    return sum(count(fleet, f"{schema}.queue_items WHERE state = 'dead'") for schema in POINTS)
