"""The delivery policy: how long a delivery is of use, quiet hours, and the channels that exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from butlers.config.butler import ButlerConfig
from butlers.domain.delivery import OWNERS_CONSOLE, DeliveryRequest, Intent
from butlers.domain.message import CONSOLE


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours of the wall clock in which the owner wants no new messages.

    They last from ``start`` until before ``end``, over midnight if the end is the earlier one.
    """

    start: time
    end: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> Self:
        """Parse "22:00-07:00", which the configuration has validated."""
        start, end = (time.fromisoformat(part) for part in text.split("-"))
        return cls(start, end, zone)

    def end_after(self, now: datetime) -> datetime | None:
        """Return the end of the quiet hours that include now, or None."""
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


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    reply_ttl: timedelta = timedelta(hours=6)
    send_ttl: timedelta = timedelta(hours=24)
    quiet: QuietHours | None = None
    channels: frozenset[str] = frozenset({CONSOLE})
    owner: tuple[str, str] = (CONSOLE, OWNERS_CONSOLE)  # channel and target of the owner

    @classmethod
    def from_config(cls, config: ButlerConfig, channels: frozenset[str]) -> Self:
        delivery, zone = config.delivery, ZoneInfo(config.timezone)
        channel, _, target = (delivery.owner or "").partition(":")
        return cls(
            timedelta(seconds=delivery.reply_ttl_s),
            timedelta(seconds=delivery.send_ttl_s),
            QuietHours.parse(delivery.quiet_hours, zone) if delivery.quiet_hours else None,
            channels,
            (channel, target) if channel in channels else (CONSOLE, OWNERS_CONSOLE),
        )

    def readdress(self, delivery: DeliveryRequest) -> DeliveryRequest:
        """Return the delivery with the owner's configured address, if it is a new message to the owner."""
        if delivery.intent is not Intent.SEND or _address(delivery) != (CONSOLE, OWNERS_CONSOLE):
            return delivery
        channel, target = self.owner
        return replace(delivery, channel=channel, target=target)

    def is_owners(self, delivery: DeliveryRequest) -> bool:
        """Return whether the delivery reaches the owner and nobody else."""
        return _address(delivery) in ((CONSOLE, OWNERS_CONSOLE), self.owner)

    def deadline(self, intent: Intent, since: datetime) -> datetime:
        """Return the time from which a delivery is too late to be of use."""
        return since + (self.send_ttl if intent is Intent.SEND else self.reply_ttl)

    def quiet_until(self, intent: Intent, now: datetime) -> datetime | None:
        """Return the end of the quiet hours, which delay new conversations but no replies."""
        return self.quiet.end_after(now) if self.quiet and intent is Intent.SEND else None


def _address(delivery: DeliveryRequest) -> tuple[str, str]:
    return delivery.channel, delivery.target
