"""A butler's budget for a day: reserved before a session starts, settled by what it used.

The day is the butler's own, from midnight to midnight in its time zone. What a session will use nobody
knows beforehand, so a round amount is reserved; what an ended session used counts in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from butlers.config.butler import BudgetConfig
from butlers.config.prices import PriceTable
from butlers.domain.errors import OverBudget
from butlers.domain.session import Outcome, SessionRequest, SessionResult, Usage
from butlers.store import sessions as log_store
from butlers.store.database import Connection
from butlers.store.sessions import Opening

RESERVED = Usage(input_tokens=20_000, output_tokens=2_000, cached_tokens=0)


@dataclass(frozen=True, slots=True)
class Budget:
    config: BudgetConfig
    prices: PriceTable
    zone: ZoneInfo

    async def open(
        self, connection: Connection, session: SessionRequest, opening: Opening, now: datetime
    ) -> None:
        """Write the session down with what it may use, or raise that nothing is left for it."""
        opening = replace(
            opening,
            reserved_tokens=_tokens(RESERVED),
            reserved_usd=self._reserved(opening.model),
        )
        if self.config.daily_tokens is not None or self.config.daily_usd is not None:
            await log_store.lock_budget(connection)
            await self._check(connection, opening, now)
        await log_store.open_session(connection, session, opening)

    def _reserved(self, model: str | None) -> Decimal | None:
        """Of a model that is not known yet, what the dearest would take: else many at once take nothing."""
        if model is None and self.config.daily_usd is not None:
            return max(
                (price.of(RESERVED) or Decimal(0) for price in self.prices.models.values()),
                default=None,
            )
        return self.prices.cost(model, RESERVED)

    async def _check(self, connection: Connection, opening: Opening, now: datetime) -> None:
        spent = await log_store.spent_since(connection, self.day_of(now))
        tokens, usd = self.config.daily_tokens, self.config.daily_usd
        if tokens is not None and spent.tokens + (opening.reserved_tokens or 0) > tokens:
            raise OverBudget(
                f"today's budget of {tokens:,} tokens is used up ({spent.tokens:,} so far)"
            )
        if usd is not None and spent.usd + (opening.reserved_usd or Decimal(0)) > usd:
            raise OverBudget(f"today's budget of ${usd} is used up (${spent.usd:.2f} so far)")

    async def refuse(
        self,
        connection: Connection,
        session: SessionRequest,
        opening: Opening,
        why: str,
        now: datetime,
    ) -> bool:
        """Keep the refusal on record; True when it is the first of the day."""
        await log_store.lock_budget(connection)  # two at once are not both the first
        told = await log_store.was_refused_since(
            connection, session.trigger_source, self.day_of(now)
        )
        await log_store.open_session(connection, session, opening)
        refused = SessionResult(Outcome.OVER_BUDGET, "", error=why)
        await log_store.close_session(connection, session.session_id, refused, 0)
        return not told

    def cost(self, result: SessionResult, model: str | None) -> Decimal | None:
        """By our own table; by what the CLI says where the table does not know the model."""
        known = self.prices.cost(result.model or model, result.usage)
        return result.usage.cost_usd if known is None else known

    def day_of(self, now: datetime) -> datetime:
        return now.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)

    def next_day(self, now: datetime) -> datetime:
        noon = self.day_of(now).replace(hour=12) + timedelta(days=1)  # past any clock change
        return noon.replace(hour=0)


def _tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)
