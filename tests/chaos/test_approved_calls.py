"""SIGKILL of a real process while it decides or runs an approved call: the call has one outcome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from butlers.domain.errors import PeerUnavailable
from support.fleet import Fleet, wait_for
from support.questions import leave_question

TOOL, ARGUMENTS = "ask_butler", {"butler": "health"}  # without a transaction, so it is queued
UNKNOWN = "the butler ended while it ran; whether it happened is not known"


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[Fleet]:
    running = Fleet.copy_of(template_home)
    try:
        running.start_all()
        yield running
    finally:
        running.close()


def shown(fleet: Fleet, action: UUID) -> dict[str, Any]:
    found: dict[str, Any] = fleet.call("general", "show_pending_action", {"action_id": str(action)})
    return found


@pytest.mark.parametrize(
    ("point", "known"),
    [
        ("approvals.claimed", True),
        ("approvals.begun", False),
        ("approvals.ran", False),
        ("approvals.handled", True),
        ("approvals.completed", True),
    ],
)
def test_call_has_one_outcome_after_a_kill(fleet: Fleet, point: str, known: bool) -> None:
    action = leave_question(fleet, TOOL, ARGUMENTS)
    fleet.stop("general")
    fleet.start("general", BUTLERS_KILL_POINT=point)
    fleet.wait_healthy("general")
    fleet.call("general", "approve_action", {"action_id": str(action)})
    fleet.wait_killed("general")
    fleet.start("general")
    fleet.wait_healthy("general")

    ended = wait_for(
        "the call to end",
        lambda: next((one for one in [shown(fleet, action)] if one["execution_result"]), None),
    )
    result = ended["execution_result"]
    assert ended["status"] == "executed"
    assert result["success"] is known, result
    if not known:
        assert UNKNOWN in result["error"]
    events = [one["event"] for one in ended["events"]]
    assert events[0] == "action_approved"
    assert len(events) == 2, events
    again = fleet.call("general", "approve_action", {"action_id": str(action)})
    assert again["execution_result"] == result
    assert shown(fleet, action)["events"] == ended["events"]


@pytest.mark.parametrize(
    ("point", "status"),
    [("approve_action.before_commit", "pending"), ("approve_action.committed", "executed")],
)
def test_decision_and_effect_commit_together(fleet: Fleet, point: str, status: str) -> None:
    """A call with a transaction runs in that of its decision: after a kill both happened, or neither."""
    text = f"approved once at {point}"
    action = leave_question(fleet, "note_add", {"text": text})
    fleet.stop("general")
    fleet.start("general", BUTLERS_KILL_POINT=point)
    fleet.wait_healthy("general")
    with pytest.raises(PeerUnavailable):
        fleet.call("general", "approve_action", {"action_id": str(action)})
    fleet.wait_killed("general")
    fleet.start("general")
    fleet.wait_healthy("general")
    notes = "SELECT FROM general.notes WHERE text = $1"
    assert shown(fleet, action)["status"] == status
    assert len(fleet.rows(notes, text)) == (status == "executed")
    ended = fleet.call("general", "approve_action", {"action_id": str(action)})
    assert (ended["status"], ended["execution_result"]["success"]) == ("executed", True)
    assert len(fleet.rows(notes, text)) == 1
