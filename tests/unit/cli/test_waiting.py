"""The end of a message, read from the hops of all butlers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from butlers.cli.waiting import _event, has_ended, progress_line

NOW = datetime.now(UTC)
LEFT = timedelta(seconds=60)


def queued(queue: str, state: str = "done", butler: str = "switchboard", **more: Any) -> Any:
    due = {"run_after": NOW.isoformat(), "error": None}
    return {"hop": "queued", "butler": butler, "queue": queue, "state": state, **due, **more}


def decided(target: str, routed: bool = True) -> Any:
    at = NOW.isoformat() if routed else None
    return {"hop": "decided", "butler": "switchboard", "target": target, "routed_at": at}


def delivery(state: str) -> Any:
    return {"hop": "delivery", "butler": "messenger", "state": state}


ROUTED = [queued("inbox"), decided("health"), queued("routes", butler="health")]


@pytest.mark.parametrize(
    ("hops", "ended"),
    [
        ([], False),
        ([queued("inbox", "leased")], False),
        ([queued("commands")], True),
        ([queued("inbox"), decided("health")], False),
        ([queued("inbox"), decided("switchboard")], True),
        ([queued("inbox"), decided("switchboard"), queued("notify", "ready")], False),
        (ROUTED, True),
        ([*ROUTED[:2], queued("routes", "leased", "health")], False),
        ([*ROUTED, queued("notify", "ready", "health")], False),
        ([*ROUTED, queued("notify", butler="health"), delivery("accepted")], False),
        ([*ROUTED, queued("notify", butler="health"), delivery("delivered")], True),
        ([*ROUTED[:2], queued("routes", "dead", "health")], True),
    ],
)
def test_message_has_ended_when_nothing_is_under_way(hops: list[Any], ended: bool) -> None:
    assert has_ended(hops, LEFT) is ended


@pytest.mark.parametrize(("minutes", "ended"), [(0.5, False), (15, True)])
def test_message_that_is_kept_for_longer_has_ended(minutes: float, ended: bool) -> None:
    # Not NOW, which is the time of collection: a long run may come here a quarter of an hour later.
    later = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()
    kept = queued("routes", "ready", "health", run_after=later, error="its model is away")
    assert has_ended([*ROUTED[:2], kept], LEFT) is ended
    assert progress_line(_event(kept) or {}) == "waiting at health: its model is away"


def test_steps_are_told_in_plain_words() -> None:
    session = {"hop": "session", "butler": "health", "runtime": "codex", "outcome": None}
    call = {"hop": "call", "butler": "health", "tool": "measurement_log", "ok": False}
    chosen = {**decided("health"), "rule": "classified"}
    lines = [progress_line(_event(hop) or {}) for hop in (chosen, session, call)]
    assert lines == [
        "routed to health (classified)",
        "health is thinking (codex)",
        "health called measurement_log, which failed",
    ]
    assert progress_line({"event": "reply"}) is None
