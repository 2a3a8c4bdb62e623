"""SIGKILL while a message is split into parts for several butlers: each part is answered once, in order.

A real CLI decides, with a fake model behind it. Messages come in and answers go out over signed webhooks, and
the answers are counted at the receiving end.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.queue.dead_letters import GIVEN_UP
from butlers.runtimes.reflex import NO_MODEL
from support import npm
from support.fake_model import ModelThread, Say, Use, in_prompt
from support.fleet import BUTLERS, wait_for
from support.offline import isolated
from support.webhook_fleet import WebhookFleet, webhook_fleet

POINTS = {
    "switchboard": (
        "assign.before_commit",
        "assign.committed",
        "inbox.decided",
        "inbox.split",
        "inbox.handled",
        "inbox.completed",
        "route_ended.before_commit",
        "route_ended.committed",
    ),
    "health": ("notify.handled", "notify.completed", "ended.handed_over"),
}
CASES = [(butler, point) for butler, points in POINTS.items() for point in points]

_pulses = itertools.count(40)


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[WebhookFleet]:
    """A fleet whose Switchboard asks a model for whom a message is."""
    programs = npm.installed("clis")
    with isolated(), ModelThread() as thinking, webhook_fleet(template_home) as running:
        running.environments["switchboard"] = {
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "ANTHROPIC_BASE_URL": thinking.model.url,
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        restart(running, "switchboard")
        yield running


def restart(fleet: WebhookFleet, butler: str, **extra: str) -> None:
    if fleet.processes[butler].poll() is None:
        fleet.stop(butler)
    fleet.start(butler, **extra)
    fleet.wait_healthy(butler)


@pytest.mark.parametrize(("butler", "point"), CASES, ids=[point for _, point in CASES])
def test_each_part_is_answered_once_and_in_order_after_a_kill(
    fleet: WebhookFleet, butler: str, point: str
) -> None:
    pulse = next(_pulses)
    restart(fleet, butler, BUTLERS_KILL_POINT=point)
    fleet.say("sure", point, two_things(pulse), thread=point)
    fleet.wait_killed(butler)
    restart(fleet, butler)

    answers = [(point, f"Logged: pulse {pulse} bpm."), (point, "Noted.")]
    wait_for("both answers", lambda: len(fleet.answers(point)) >= len(answers))
    wait_for("every queue to be empty", lambda: settled(fleet))
    assert fleet.answers(point) == answers


@pytest.mark.parametrize(
    "point",
    ["inbox.bury.before_commit", "inbox.bury.committed", "dead.before_commit", "dead.committed"],
)
def test_sender_of_a_failed_part_is_notified_once_after_a_kill(
    fleet: WebhookFleet, point: str
) -> None:
    """The first part cannot be handled, so the second becomes a dead letter, which is reported."""
    told = next(_pulses)
    restart(fleet, "switchboard", BUTLERS_KILL_POINT=point)
    fleet.say("sure", point, two_parts("what is love?", f"note: after {told}"), thread=point)
    fleet.wait_killed("switchboard")
    restart(fleet, "switchboard")

    answers = [(point, NO_MODEL), (point, GIVEN_UP)]
    wait_for("both answers", lambda: len(fleet.answers(point)) >= len(answers))
    wait_for("every queue to be empty", lambda: settled(fleet))
    assert fleet.answers(point) == answers
    assert (
        fleet.rows("SELECT 1 FROM switchboard.queue_items WHERE state = 'dead' AND NOT told") == []
    )


def two_things(pulse: int) -> str:
    """A message that its classification gives to two butlers, the second after the first."""
    return two_parts(f"pulse {pulse}", f"note: after {pulse}")


def two_parts(first: str, second: str) -> str:
    script = in_prompt(
        Use("assign", butler="health", reason="a measurement", part=first),
        Use("assign", butler="general", reason="a note", part=second, after_previous=True),
        Say("Both are assigned."),
    )
    return f"two things at once, please {script}"


def settled(fleet: WebhookFleet) -> bool:
    """Return whether nothing is left to do. A message that waits for a model is kept."""
    return fleet.settled(*BUTLERS, or_kept=True)
