"""SIGKILL where the parts of one message wait for each other: each part is answered once, in order."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from support.fleet import Fleet, wait_for

POINTS = (
    ("health", "reports.handled"),
    ("switchboard", "route_ended.before_commit"),
    ("switchboard", "route_ended.committed"),
)
PARTS = """
INSERT INTO switchboard.route_decisions
    (request_id, target, position, rule, reason, part, after_previous)
SELECT $1, target, position, 'classified', 'two things', part, position > 0
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS part(target, part, ordinal),
     LATERAL (SELECT ordinal::int - 1 AS position) AS place
"""
DECIDED = "UPDATE switchboard.message_inbox SET decided_at = now() WHERE request_id = $1"

_pulses = itertools.count(40)


@pytest.mark.parametrize(("butler", "point"), POINTS, ids=[point for _, point in POINTS])
def test_the_second_part_goes_on_once_when_the_first_has_ended(
    fleet: Fleet, butler: str, point: str
) -> None:
    pulse = next(_pulses)
    request_id = decided_in_two(fleet, f"pulse {pulse}", f"note: after {pulse}")
    if butler != "switchboard":
        fleet.stop(butler)
        fleet.start("switchboard")
    fleet.start(butler, BUTLERS_KILL_POINT=point)
    fleet.wait_killed(butler)
    fleet.start(butler)
    fleet.wait_healthy(butler)

    words = (f"Logged: pulse {pulse} bpm.", "Noted.")
    mail = "SELECT message FROM messenger.console_mailbox WHERE request_id = $1 ORDER BY posted_at"
    wait_for("both answers", lambda: len(fleet.rows(mail, request_id)) >= len(words))
    wait_for("every queue to be empty", lambda: settled(fleet))
    assert tuple(row["message"] for row in fleet.rows(mail, request_id)) == words
    ended = "SELECT ended_well FROM switchboard.route_decisions WHERE request_id = $1"
    assert [row["ended_well"] for row in fleet.rows(ended, request_id)] == [True, True]


def decided_in_two(fleet: Fleet, first: str, second: str) -> UUID:
    """A message whose parts are decided, as a session would, while the Switchboard is down."""
    fleet.stop("switchboard")
    fleet.start("switchboard", BUTLERS_KILL_POINT="inbox.claimed")
    fleet.wait_healthy("switchboard")
    request_id = fleet.send(f"{first}, and {second}")
    fleet.wait_killed("switchboard")
    fleet.rows(PARTS, request_id, ["health", "general"], [first, second])
    fleet.rows(DECIDED, request_id)
    return request_id


def settled(fleet: Fleet) -> bool:
    open_items = "SELECT FROM {}.queue_items WHERE state IN ('ready', 'leased')"
    names = ("switchboard", "health", "general", "messenger")
    return not any(fleet.rows(open_items.format(name)) for name in names)
