"""Whatever dies, freezes or stays away: N messages in, N answered, none twice, order kept in a thread.

Messages come in and answers go out over signed webhooks; all counts are taken at the receiving end. The seed
of what goes wrong and when is printed, and BUTLERS_STORM_SEED repeats it.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.fleet import wait_for
from support.properties import SEED_PROPERTY
from support.storm import ON_THE_ROAD, Storm
from support.webhook_fleet import WebhookFleet, webhook_fleet

SEED = int(os.environ.get("BUTLERS_STORM_SEED") or random.SystemRandom().getrandbits(32))
AWAY_S = 125.0  # seconds; divided by the pace of the test


@dataclass(frozen=True)
class Scale:
    """Size of a storm, and how many times shorter leases, pauses and absences are in it."""

    messages: int
    pace: float

    @property
    def away_s(self) -> float:
        return AWAY_S / self.pace


ASKED = int(os.environ.get("BUTLERS_STORM_MESSAGES") or 0)
SCALES = [
    pytest.param(Scale(ASKED or 200, 5), id="fast"),
    pytest.param(Scale(ASKED or 1000, 1), id="real", marks=pytest.mark.soak),
]


@pytest.fixture(params=SCALES)
def scale(request: pytest.FixtureRequest) -> Scale:
    chosen: Scale = request.param
    return chosen


@pytest.fixture
def fleet(template_home: Path, scale: Scale) -> Iterator[WebhookFleet]:
    with webhook_fleet(template_home, BUTLERS_TEST_PACE=str(scale.pace)) as running:
        yield running


@pytest.fixture(autouse=True)
def _tell_the_seed(scale: Scale, record_property: Callable[[str, object], None]) -> None:
    seed = f"BUTLERS_STORM_SEED={SEED} BUTLERS_STORM_MESSAGES={scale.messages}"
    record_property(SEED_PROPERTY, seed)


@pytest.mark.timeout(900)  # what it needs where others work too; a part that hangs ends sooner
def test_in_a_storm_every_message_is_answered_once_and_in_order(
    fleet: WebhookFleet, scale: Scale
) -> None:
    storm = Storm(fleet, SEED, scale.messages)
    try:
        storm.rage()
    finally:
        print("\n".join(storm.happened))
    wait_for("every queue to be empty", lambda: fleet.settled(*ON_THE_ROAD))

    answered = Counter(event for event, _ in fleet.answers())
    assert [one for one in fleet.answers() if answered[one[0]] > 1] == []
    assert sum(answered.values()) == scale.messages
    assert len(set(fleet.notices())) == len(fleet.notices())
    for thread, numbers in storm.conversations.items():
        assert fleet.answers(thread) == [storm.answer(number) for number in numbers]
    assert dead_letters(fleet) == 0


@pytest.mark.timeout(600)
def test_a_messenger_that_is_away_for_minutes_sends_all_of_it_once_and_in_order(
    fleet: WebhookFleet, scale: Scale
) -> None:
    storm = Storm(fleet, SEED, 40)
    fleet.kill("messenger")
    gone = time.monotonic()
    storm.speak()
    wait_for("minutes to pass", lambda: time.monotonic() - gone >= scale.away_s, AWAY_S * 2)
    assert fleet.answers() == []
    fleet.start("messenger")
    wait_for("all answers", lambda: len(fleet.answers()) >= storm.messages, AWAY_S * 2)
    wait_for("every queue to be empty", lambda: fleet.settled(*ON_THE_ROAD))
    assert len(fleet.answers()) == storm.messages
    for thread, numbers in storm.conversations.items():
        assert fleet.answers(thread) == [storm.answer(number) for number in numbers]
    assert dead_letters(fleet) == 0


@pytest.mark.timeout(600)
def test_a_switchboard_that_is_frozen_past_its_leases_answers_each_once_and_in_order(
    fleet: WebhookFleet,
) -> None:
    storm = Storm(fleet, SEED, 80)
    with ThreadPoolExecutor(1) as pool:
        speaking = pool.submit(storm.speak)
        storm.freeze("switchboard")
        speaking.result()
    storm.wait_answered(storm.messages)
    wait_for("every queue to be empty", lambda: fleet.settled(*ON_THE_ROAD))
    assert len(fleet.answers()) == storm.messages
    for thread, numbers in storm.conversations.items():
        assert fleet.answers(thread) == [storm.answer(number) for number in numbers]
    assert dead_letters(fleet) == 0


def dead_letters(fleet: WebhookFleet) -> int:
    dead = "SELECT FROM {}.queue_items WHERE state = 'dead'"
    return sum(len(fleet.rows(dead.format(name))) for name in ON_THE_ROAD)
