"""A rate limit: so many in any window of time for each key, and how long the next one has to wait."""

from __future__ import annotations

from datetime import datetime, timedelta

from butlers.domain.clock import Clock

MINUTE = timedelta(minutes=1)


class RateLimit:
    def __init__(self, clock: Clock, limit: int, window: timedelta = MINUTE) -> None:
        self._clock = clock
        self._limit = limit
        self._window = window
        self._taken: dict[str, list[datetime]] = {}

    def wait(self, key: str) -> timedelta:
        """How long until one more may go; zero: it may now."""
        now = self._clock.now()
        taken = self._recent(key, now)
        if len(taken) < self._limit:
            return timedelta(0)
        # A clock that was set back disorders them, and makes nobody wait longer than a window.
        return min(sorted(taken)[-self._limit] + self._window - now, self._window)

    def take(self, key: str, at: datetime | None = None) -> None:
        """One goes."""
        self._taken.setdefault(key, []).append(at or self._clock.now())

    def used(self, key: str) -> int:
        return len(self._recent(key, self._clock.now()))

    def keys(self) -> list[str]:
        """Those that have used some of their window."""
        return [key for key in list(self._taken) if self.used(key)]

    def _recent(self, key: str, now: datetime) -> list[datetime]:
        taken = [at for at in self._taken.pop(key, ()) if at + self._window > now]
        if taken:
            self._taken[key] = taken
        return taken
