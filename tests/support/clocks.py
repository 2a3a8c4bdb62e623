"""Clocks that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class SetClock:
    """Stands still until it is moved."""

    def __init__(self, now: datetime = datetime(2026, 5, 4, 12, tzinfo=UTC)) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    def move(self, **by: float) -> None:
        self._now += timedelta(**by)


class LeapClock:
    """Runs with the real time, by as much ahead as the test has leapt."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        return self.now().timestamp()

    def leap(self, **by: float) -> None:
        self._ahead += timedelta(**by)
