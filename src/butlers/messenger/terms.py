"""The Messenger's terms: how long a delivery counts, when it is quiet, and which channels there are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from butlers.config.butler import ButlerConfig
from butlers.domain.delivery import Intent
from butlers.domain.message import CONSOLE
from butlers.messenger.quiet_hours import QuietHours


@dataclass(frozen=True, slots=True)
class Terms:
    reply_ttl: timedelta = timedelta(hours=6)
    send_ttl: timedelta = timedelta(hours=24)
    quiet: QuietHours | None = None
    channels: frozenset[str] = frozenset({CONSOLE})

    @classmethod
    def of(cls, config: ButlerConfig, channels: frozenset[str]) -> Self:
        given = config.delivery
        quiet = given.quiet_hours and QuietHours.parse(given.quiet_hours, ZoneInfo(config.timezone))
        return cls(
            timedelta(seconds=given.reply_ttl_s),
            timedelta(seconds=given.send_ttl_s),
            quiet or None,
            channels,
        )

    def deadline(self, intent: Intent, since: datetime) -> datetime:
        """When a delivery that counts from then is too late to be of use."""
        return since + (self.send_ttl if intent is Intent.SEND else self.reply_ttl)

    def quiet_until(self, intent: Intent, now: datetime) -> datetime | None:
        """What somebody waits for is not kept back; what starts a conversation is."""
        return self.quiet.end_after(now) if self.quiet and intent is Intent.SEND else None
