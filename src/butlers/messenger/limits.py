"""Limits of the lines to the outside: rate limits and circuit breakers, kept in memory.

A line is what fails as one: a channel, or one of the addresses that a channel is configured with. After a
restart the state is rebuilt from the recorded attempts.

Circuit breaker: closed --(failures in a row)--> open --(pause)--> half open --success--> closed
                                                  ^-------------failure---'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from butlers.domain.clock import Clock
from butlers.domain.delivery import AttemptOutcome
from butlers.messenger.deliveries import LineAttempt

MINUTE = timedelta(minutes=1)
STEP_BACK = timedelta(seconds=5)
LOOK_BACK = timedelta(minutes=10)  # age of the oldest attempt that a restart reads


class RateLimit:
    """Allows a number of events per key in any window of time."""

    def __init__(self, clock: Clock, limit: int, window: timedelta = MINUTE) -> None:
        self._clock = clock
        self._limit = limit
        self._window = window
        self._taken: dict[str, list[datetime]] = {}

    def wait(self, key: str) -> timedelta:
        """Return the time until one more is allowed; zero: now."""
        now = self._clock.now()
        taken = self._recent(key, now)
        if len(taken) < self._limit:
            return timedelta(0)
        # A clock that was set back disorders the times; the wait is never longer than a window.
        return min(sorted(taken)[-self._limit] + self._window - now, self._window)

    def take(self, key: str, at: datetime | None = None) -> None:
        """Count one event."""
        self._taken.setdefault(key, []).append(at or self._clock.now())

    def used(self, key: str) -> int:
        return len(self._recent(key, self._clock.now()))

    def keys(self) -> list[str]:
        """Return the keys with events in the current window."""
        return [key for key in list(self._taken) if self.used(key)]

    def _recent(self, key: str, now: datetime) -> list[datetime]:
        taken = [at for at in self._taken.pop(key, ()) if at + self._window > now]
        if taken:
            self._taken[key] = taken
        return taken


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    failures: int = 5  # in a row
    pause: timedelta = timedelta(seconds=60)
    look_again: timedelta = timedelta(seconds=1)  # for deliveries that wait for the probe's outcome


RULES = BreakerRules()


class CircuitBreaker:
    """Stops sending over a line that fails repeatedly, then probes it with one delivery.

    Closed: deliveries are sent. Open: they wait. Half open: one is sent as a probe, the others wait.
    """

    def __init__(self, clock: Clock, rules: BreakerRules = RULES) -> None:
        self._clock = clock
        self._rules = rules
        self._failures = 0
        self._failed_at: datetime | None = None
        self._probe_at: datetime | None = None

    @property
    def failures(self) -> int:
        """The number of failures in a row."""
        return self._failures

    @property
    def state(self) -> BreakerState:
        if self._failures < self._rules.failures:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self._left(self._failed_at) else BreakerState.HALF_OPEN

    def wait(self) -> timedelta:
        """Return the time until the next delivery may be sent; zero: now."""
        if self.state is BreakerState.CLOSED:
            return timedelta(0)
        # A probe without an outcome blocks the line for one pause at most.
        probing = self._left(self._probe_at)
        return self._left(self._failed_at) or min(probing, self._rules.look_again)

    def started(self) -> None:
        """Note that a delivery is being sent. While half open it is the probe; the others wait."""
        if self.state is BreakerState.HALF_OPEN:
            self._probe_at = self._clock.now()

    def succeeded(self) -> None:
        self._failures, self._failed_at, self._probe_at = 0, None, None

    def failed(self, at: datetime | None = None) -> None:
        self._failures += 1
        self._failed_at, self._probe_at = at or self._clock.now(), None

    def dropped(self) -> None:
        """Note that a started delivery was not tried after all, which says nothing about the line."""
        self._probe_at = None

    def _left(self, since: datetime | None) -> timedelta:
        """Return the rest of a pause. A clock that was set back does not make it longer."""
        if since is None:
            return timedelta(0)
        left = since + self._rules.pause - self._clock.now()
        return max(timedelta(0), min(left, self._rules.pause))


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason why a delivery has to wait, and until when."""

    until: datetime
    reason: str


class DeliveryLimits:
    """The rate limits and circuit breakers of all lines and recipients."""

    def __init__(
        self,
        clock: Clock,
        *,
        per_minute: int,
        per_recipient_per_minute: int,
        rules: BreakerRules = RULES,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._lines = RateLimit(clock, per_minute)
        self._recipients = RateLimit(clock, per_recipient_per_minute)
        self._limits = (per_minute, per_recipient_per_minute)
        self._breakers: dict[str, CircuitBreaker] = {}
        self._paused: dict[str, datetime] = {}

    def hold(self, line: str, recipient: str) -> Hold | None:
        """Return the limit that delays a delivery, or None if it may be sent."""
        now = self._clock.now()
        if (until := self._paused.get(line)) and until > now:
            return Hold(until, f"{line} asked for a pause")
        if wait := self._breaker(line).wait():
            return Hold(now + wait, f"{line} failed {self._breaker(line).failures} times in a row")
        if wait := self._lines.wait(line):
            return Hold(now + wait, f"{self._limits[0]} deliveries in a minute went to {line}")
        if wait := self._recipients.wait(recipient):
            return Hold(now + wait, f"{self._limits[1]} deliveries in a minute went to {recipient}")
        return None

    def started(self, line: str, recipient: str) -> None:
        self._breaker(line).started()
        self._lines.take(line)
        self._recipients.take(recipient)

    def ended(self, line: str, outcome: AttemptOutcome) -> None:
        """Note an outcome. A refusal is an answer, so it counts as a success of the line."""
        breaker = self._breaker(line)
        if outcome.is_trouble:
            breaker.failed()
        elif outcome in (AttemptOutcome.DIED, AttemptOutcome.BUSY):
            breaker.dropped()
        else:
            breaker.succeeded()

    def is_working(self, line: str) -> bool:
        """Return whether the line is known to work, so that a failure is the delivery's own."""
        return self._breaker(line).state is BreakerState.CLOSED

    def after_probe(self, line: str, until: datetime) -> datetime:
        """Return when a delivery that failed over the line may be tried again.

        While the line fails, other deliveries probe it first: if they succeed, the line was not the
        reason.
        """
        if self.is_working(line):
            return until
        return max(until, self._clock.now() + self._breaker(line).wait() + STEP_BACK)

    def pause(self, line: str, until: datetime) -> None:
        """Pause a line because its platform asked for it."""
        self._paused[line] = until

    def rebuild(self, attempts: Iterable[LineAttempt]) -> None:
        """Restore the state from the attempts of an earlier process, the oldest first."""
        edge = self._clock.now() - MINUTE
        for attempt in attempts:
            if attempt.started_at > edge:
                self._lines.take(attempt.line, attempt.started_at)
                self._recipients.take(attempt.recipient, attempt.started_at)
            breaker = self._breaker(attempt.line)
            if attempt.outcome is None or attempt.outcome is AttemptOutcome.DIED:
                continue
            if attempt.outcome.is_trouble:
                breaker.failed(attempt.ended_at)
            elif attempt.outcome is not AttemptOutcome.BUSY:
                breaker.succeeded()

    def describe(self) -> dict[str, Any]:
        """Return the state for ``messenger_status``."""
        return {
            "lines": [
                self._describe_line(line, breaker)
                for line, breaker in sorted(self._breakers.items())
            ],
            "per_minute": self._limits[0],
            "per_recipient_per_minute": self._limits[1],
            "recipients_last_minute": {
                key: self._recipients.used(key) for key in sorted(self._recipients.keys())
            },
        }

    def _describe_line(self, line: str, breaker: CircuitBreaker) -> dict[str, Any]:
        now, paused_until = self._clock.now(), self._paused.get(line)
        closed = breaker.state is BreakerState.CLOSED
        return {
            "line": line,
            "breaker": str(breaker.state),
            "failures_in_a_row": breaker.failures,
            "opens_again_at": None if closed else now + breaker.wait(),
            "paused_until": paused_until if paused_until and paused_until > now else None,
            "sent_last_minute": self._lines.used(line),
        }

    def _breaker(self, line: str) -> CircuitBreaker:
        if line not in self._breakers:
            self._breakers[line] = CircuitBreaker(self._clock, self._rules)
        return self._breakers[line]
