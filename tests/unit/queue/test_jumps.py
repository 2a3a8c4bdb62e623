"""A wall clock that is set is told from time that passes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from butlers.queue.listener import JumpDetector

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wall_s", "passed_s", "jump_s"),
    [(5, 5, None), (3605, 3605, None), (7205, 5, 7200), (-7195, 5, -7200), (9, 5, None)],
)
def test_only_a_clock_that_was_set_has_jumped(
    wall_s: float, passed_s: float, jump_s: float | None
) -> None:
    times = iter([100.0, 100.0 + passed_s])
    detector = JumpDetector(lambda: next(times))
    assert detector.jump(NOON) is None
    found = detector.jump(NOON + timedelta(seconds=wall_s))
    assert found == (None if jump_s is None else timedelta(seconds=jump_s))
