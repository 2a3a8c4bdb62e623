"""SIGKILL where a message is given in parts to several butlers: each part is answered once, in order.

A real CLI decides, with a fake model behind it. Messages come in and answers go out over signed webhooks, and
the answers are counted at the receiving end.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from butlers.queue.dead_letters import GIVEN_UP
from butlers.runtimes.reflex import NO_MODEL
from support import npm
from support.fake_model import ModelThread, Say, Use, in_prompt
from support.fleet import wait_for
from support.offline import isolated
from support.talking_fleet import TalkingFleet, talking_fleet

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


@dataclass
class ThinkingFleet:
    """A fleet whose Switchboard asks a model whose a message is."""

    fleet: TalkingFleet
    environment: dict[str, str]

    def start(self, butler: str, **extra: str) -> None:
        thinks = self.environment if butler == "switchboard" else {}
        self.fleet.start(butler, **thinks, **extra)
        self.fleet.wait_healthy(butler)


@pytest.fixture(scope="module")
def tester(template_home: Path) -> Iterator[ThinkingFleet]:
    programs = npm.installed("clis")
    with isolated(), ModelThread() as thinking, talking_fleet(template_home) as fleet:
        environment = {
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "ANTHROPIC_BASE_URL": thinking.model.url,
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        running = ThinkingFleet(fleet, environment)
        fleet.stop("switchboard")
        running.start("switchboard")
        yield running


@pytest.mark.parametrize(("butler", "point"), CASES, ids=[point for _, point in CASES])
def test_killed_there_and_restarted_each_part_is_answered_once_and_in_order(
    tester: ThinkingFleet, butler: str, point: str
) -> None:
    fleet, pulse = tester.fleet, next(_pulses)
    fleet.stop(butler)
    tester.start(butler, BUTLERS_KILL_POINT=point)
    fleet.say("sure", point, two_things(pulse), thread=point)
    fleet.wait_killed(butler)
    tester.start(butler)

    answers = [(point, f"Logged: pulse {pulse} bpm."), (point, "Noted.")]
    wait_for("both answers", lambda: len(fleet.answers(point)) >= len(answers))
    wait_for("every queue to be empty", lambda: settled(fleet))
    assert fleet.answers(point) == answers


@pytest.mark.parametrize(
    "point",
    ["inbox.bury.before_commit", "inbox.bury.committed", "dead.before_commit", "dead.committed"],
)
def test_killed_as_a_part_is_given_up_its_sender_is_told_once(
    tester: ThinkingFleet, point: str
) -> None:
    """The first part can not be done, so the second is a dead letter: buried, and told."""
    fleet, told = tester.fleet, next(_pulses)
    fleet.stop("switchboard")
    tester.start("switchboard", BUTLERS_KILL_POINT=point)
    fleet.say("sure", point, two_parts("what is love?", f"note: after {told}"), thread=point)
    fleet.wait_killed("switchboard")
    tester.start("switchboard")

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


def settled(fleet: TalkingFleet) -> bool:
    open_items = "SELECT FROM {}.queue_items WHERE state IN ('ready', 'leased')"
    names = ("switchboard", "health", "general", "messenger")
    return not any(fleet.rows(open_items.format(name)) for name in names)
