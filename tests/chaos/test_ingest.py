"""SIGKILL of the Switchboard during webhook posts, owner commands and the release of held messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.errors import ButlersError
from support.fleet import BUTLERS, wait_for
from support.webhook_fleet import WebhookFleet, webhook_fleet


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[WebhookFleet]:
    with webhook_fleet(template_home) as running:
        yield running


def killed_at(fleet: WebhookFleet, point: str, work: Callable[[], Any]) -> Any:
    """Return the result or error of the work while the Switchboard is killed and started again."""
    fleet.stop("switchboard")
    fleet.start("switchboard", BUTLERS_KILL_POINT=point)
    fleet.wait_healthy("switchboard")
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        fleet.wait_killed("switchboard")
        fleet.start("switchboard")
        fleet.wait_healthy("switchboard")
        return working.exception() or working.result()


def wait_settled(fleet: WebhookFleet, *, or_kept: bool = False) -> None:
    wait_for("every queue to be empty", lambda: fleet.settled(*BUTLERS, or_kept=or_kept))


def answers_to(fleet: WebhookFleet, event: str) -> list[str]:
    return [words for answered, words in fleet.answers() if answered == event]


@pytest.mark.parametrize("point", ["door.before_commit", "door.committed"])
def test_webhook_post_repeated_after_a_kill_is_answered_once(
    fleet: WebhookFleet, point: str
) -> None:
    taken = killed_at(fleet, point, lambda: fleet.say("sure", point, "pulse 60"))
    assert taken["duplicate"] is (point == "door.committed")
    wait_for("the answer", lambda: answers_to(fleet, point))
    wait_settled(fleet)
    assert answers_to(fleet, point) == ["Logged: pulse 60 bpm."]


@pytest.mark.parametrize("point", ["commands.handled", "notify.handled"])
def test_owner_command_is_answered_once_after_a_kill(fleet: WebhookFleet, point: str) -> None:
    killed_at(fleet, point, lambda: fleet.say("sure", point, "/status"))
    wait_for("the answer", lambda: answers_to(fleet, point))
    wait_settled(fleet)
    (status,) = answers_to(fleet, point)
    assert "switchboard: healthy" in status


@pytest.mark.parametrize("point", ["contacts_allow.before_commit", "contacts_allow.committed"])
def test_released_messages_are_answered_once_after_a_kill(fleet: WebhookFleet, point: str) -> None:
    stranger = point.replace(".", "-")
    said = fleet.say("guest", point, "pulse 62", sender=stranger)
    assert said["status"] == "held"
    allow = {"channel": "webhook", "identity": f"guest:{stranger}"}
    failed = killed_at(fleet, point, lambda: fleet.call("switchboard", "contacts_allow", allow))
    assert isinstance(failed, ButlersError)
    fleet.call("switchboard", "contacts_allow", allow)  # the owner tries again

    wait_for("the answer", lambda: answers_to(fleet, point))
    wait_settled(fleet, or_kept=True)  # a guest's message has no reflex; it waits for a model
    assert len(answers_to(fleet, point)) == 1
