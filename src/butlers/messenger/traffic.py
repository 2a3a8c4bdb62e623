"""How much goes over each line, and whether it is open: breakers and rate limits, in memory.

A line is what fails as one: a channel, or one of the addresses that a channel is configured with. After a
restart the state is rebuilt from the attempts that are on record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from butlers.domain.clock import Clock
from butlers.domain.delivery import AttemptOutcome
from butlers.messenger.breaker import RULES, Breaker, BreakerRules, BreakerState
from butlers.messenger.delivery_attempts import Attempt
from butlers.messenger.rate_limit import MINUTE, RateLimit

STEP_BACK = timedelta(seconds=5)
LOOK_BACK = timedelta(minutes=10)  # over which attempts a restart looks


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a delivery has to wait now, and until when."""

    until: datetime
    why: str


class Traffic:
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
        self._breakers: dict[str, Breaker] = {}
        self._paused: dict[str, datetime] = {}

    def hold(self, line: str, recipient: str) -> Hold | None:
        """What is in the way of one delivery; None: it may go."""
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

    def went(self, line: str, recipient: str) -> None:
        self._breaker(line).went()
        self._lines.take(line)
        self._recipients.take(recipient)

    def ended(self, line: str, outcome: AttemptOutcome) -> None:
        """What an attempt says about its line: a refusal is an answer, so the line works."""
        breaker = self._breaker(line)
        if outcome.is_trouble:
            breaker.failed()
        elif outcome in (AttemptOutcome.DIED, AttemptOutcome.BUSY):
            breaker.dropped()
        else:
            breaker.succeeded()

    def is_open(self, line: str) -> bool:
        """Whether the line works, as far as is known: its failures are then the delivery's own."""
        return self._breaker(line).state is BreakerState.CLOSED

    def behind(self, line: str, until: datetime) -> datetime:
        """Whoever has just met a line that is shut lets those go first who have not: if the line works
        for them, it was not the line."""
        if self.is_open(line):
            return until
        return max(until, self._clock.now() + self._breaker(line).wait() + STEP_BACK)

    def pause(self, line: str, until: datetime) -> None:
        """The platform asked for it."""
        self._paused[line] = until

    def rebuild(self, attempts: Iterable[Attempt]) -> None:
        """From what was tried before the process began, the oldest first."""
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
        now = self._clock.now()
        return {
            "lines": [
                {
                    "line": line,
                    "breaker": str(breaker.state),
                    "failures_in_a_row": breaker.failures,
                    "opens_again_at": now + breaker.wait()
                    if breaker.state is not BreakerState.CLOSED
                    else None,
                    "paused_until": until
                    if (until := self._paused.get(line)) and until > now
                    else None,
                    "sent_last_minute": self._lines.used(line),
                }
                for line, breaker in sorted(self._breakers.items())
            ],
            "per_minute": self._limits[0],
            "per_recipient_per_minute": self._limits[1],
            "recipients_last_minute": {
                key: self._recipients.used(key) for key in sorted(self._recipients.keys())
            },
        }

    def _breaker(self, line: str) -> Breaker:
        if line not in self._breakers:
            self._breakers[line] = Breaker(self._clock, self._rules)
        return self._breakers[line]
