"""Quiet hours: when the owner wants no new messages, by the wall clock of a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Self
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From ``start`` until before ``end``, over midnight where the end is the earlier one."""

    start: time
    end: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> Self:
        """Of "22:00-07:00", as the configuration has checked it."""
        start, end = (time.fromisoformat(part) for part in text.split("-"))
        return cls(start, end, zone)

    def end_after(self, now: datetime) -> datetime | None:
        """When the quiet hours end that it is in now; None: it is in none."""
        local = now.astimezone(self.zone)
        if not self._includes(local.time()):
            return None
        day = local.date() + timedelta(days=1 if local.time() >= self.end else 0)
        # An hour that comes twice in autumn has two ends, and the first may be over.
        ends = (datetime.combine(day, self.end.replace(fold=fold), self.zone) for fold in (0, 1))
        return next((end for one in ends if (end := one.astimezone(UTC)) > now), None)

    def _includes(self, moment: time) -> bool:
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end
