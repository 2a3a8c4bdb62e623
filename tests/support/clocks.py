"""Clocks that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class SetClock:
    """Stands still until it is moved."""

    def __init__(self, at: datetime = datetime(2026, 5, 4, 12, tzinfo=UTC)) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def move(self, **by: float) -> datetime:
        self.at += timedelta(**by)
        return self.at


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
