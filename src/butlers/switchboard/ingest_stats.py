"""What the door itself saw of each source in the last minutes, whatever the source says of itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from butlers.domain.clock import Clock

WINDOW_S = 60.0
MOST_SOURCES = 1_000
MOST_EVENTS = 10_000


class Seen(StrEnum):
    NEW = "new"
    NOTED = "noted"  # of which its connector said no more than that it came
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    FAILED = "failed"  # by the connector's own count


@dataclass(frozen=True, slots=True)
class Counts:
    new: int = 0
    duplicate: int = 0
    refused: int = 0
    noted: int = 0
    failed: int = 0
    last_refusal: str | None = None


@dataclass(slots=True)
class _Source:
    events: deque[tuple[float, Seen]] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    last_refusal: str | None = None


class IngestStats:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By endpoint alone: what a connector is called and which channel it serves need not be the same.
        self._sources: dict[str, _Source] = {}

    def count(self, endpoint: str, seen: Seen, why: str | None = None, times: int = 1) -> None:
        if endpoint not in self._sources and len(self._sources) >= MOST_SOURCES:
            return  # somebody makes up names; the known ones are still counted
        source = self._sources.setdefault(endpoint, _Source())
        now = self._clock.monotonic()
        source.events.extend((now, seen) for _ in range(min(times, MOST_EVENTS)))
        source.last_refusal = why or source.last_refusal

    def counts(self, endpoint: str) -> Counts:
        """Of the last minute."""
        source = self._sources.get(endpoint)
        if source is None:
            return Counts()
        since = self._clock.monotonic() - WINDOW_S
        while source.events and source.events[0][0] < since:
            source.events.popleft()
        kinds = [seen for _, seen in source.events]
        return Counts(
            kinds.count(Seen.NEW),
            kinds.count(Seen.DUPLICATE),
            kinds.count(Seen.REFUSED),
            kinds.count(Seen.NOTED),
            kinds.count(Seen.FAILED),
            source.last_refusal,
        )

    def endpoints(self) -> list[str]:
        """All that were counted, by name."""
        return sorted(self._sources)
