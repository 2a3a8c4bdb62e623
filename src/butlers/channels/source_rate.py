"""A limit on how many requests one source may make before any of them is checked."""

from __future__ import annotations

from collections import OrderedDict

from butlers.domain.clock import Clock
from butlers.domain.errors import TooManyRequests

PER_S = 100.0
BURST = 300
MOST_SOURCES = 10_000  # of which the one that was silent for longest is forgotten


class SourceRate:
    """Counts requests by source, as buckets that refill over time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # requests, and since when

    def count(self, source: str) -> None:
        """Count one request. Raise TooManyRequests if the source has made too many."""
        now = self._clock.monotonic()
        left, since = self._left.pop(source, (float(BURST), now))
        left = min(BURST, left + (now - since) * PER_S)
        self._left[source] = (max(0.0, left - 1), now)
        if len(self._left) > MOST_SOURCES:
            self._left.popitem(last=False)
        if left < 1:
            raise TooManyRequests
