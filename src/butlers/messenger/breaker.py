"""A circuit breaker: a line that fails again and again is left alone, then tried with one delivery.

closed --(failures in a row)--> open --(pause)--> half open --success--> closed
                                  ^-------------failure---'
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from butlers.domain.clock import Clock


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    failures: int = 5  # in a row
    pause: timedelta = timedelta(seconds=60)
    look_again: timedelta = timedelta(seconds=1)  # for those that wait for the probe's outcome


RULES = BreakerRules()


class Breaker:
    def __init__(self, clock: Clock, rules: BreakerRules = RULES) -> None:
        self._clock = clock
        self._rules = rules
        self._failures = 0
        self._failed_at: datetime | None = None
        self._probe_at: datetime | None = None

    @property
    def failures(self) -> int:
        """In a row, up to now."""
        return self._failures

    @property
    def state(self) -> BreakerState:
        if self._failures < self._rules.failures:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._left(self._failed_at) else BreakerState.HALF_OPEN

    def wait(self) -> timedelta:
        """How long the next one has to wait; zero: it may go now."""
        if self.state is BreakerState.CLOSED:
            return timedelta(0)
        # A probe that never said how it ended does not keep the line shut for longer than a pause.
        probing = self._left(self._probe_at)
        return self._left(self._failed_at) or min(probing, self._rules.look_again)

    def went(self) -> None:
        """One goes. While the breaker is half open it is the probe, and the others wait for it."""
        if self.state is BreakerState.HALF_OPEN:
            self._probe_at = self._clock.now()

    def succeeded(self) -> None:
        self._failures, self._failed_at, self._probe_at = 0, None, None

    def failed(self, at: datetime | None = None) -> None:
        self._failures += 1
        self._failed_at, self._probe_at = at or self._clock.now(), None

    def dropped(self) -> None:
        """One that went was not tried after all; it says nothing about the line."""
        self._probe_at = None

    def _left(self, since: datetime | None) -> timedelta:
        """Of the pause that began then. A clock that was set back does not make it longer."""
        if since is None:
            return timedelta(0)
        left = since + self._rules.pause - self._clock.now()
        return max(timedelta(0), min(left, self._rules.pause))
