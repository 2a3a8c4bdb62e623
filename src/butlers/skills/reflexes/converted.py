"""What a group of a message became."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

Prefer = Literal["future", "past"]


@dataclass(frozen=True, slots=True)
class Converted:
    value: Any
    said: str
    parts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """When and where a message is read: "tomorrow" means nothing without it."""

    now: datetime
    zone: ZoneInfo

    @property
    def local(self) -> datetime:
        return self.now.astimezone(self.zone)

    def at(self, wall_clock: datetime) -> datetime:
        """The instant of a local time: one that does not exist moves on, of two the first counts.

        The way through UTC does both, as a naive time in a gap has the offset from before the gap.
        """
        instant = wall_clock.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        return instant.astimezone(self.zone)


@dataclass(frozen=True, slots=True)
class GroupRule:
    """What the file says of one named group."""

    type: str = "text"
    default: str | None = None
    required: bool = False
    default_currency: str | None = None
    prefer: Prefer = "future"
