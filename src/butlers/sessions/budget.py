"""A butler's budget for a day: reserved before a session starts, settled by what it used.

What a session will use nobody knows beforehand, so a round amount is reserved; what an ended session used
counts in its place. It has to fit into the butler's own budget and into the fleet's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import structlog

from butlers.config.butler import BudgetConfig
from butlers.config.prices import PriceTable
from butlers.db.database import Connection
from butlers.domain.session import Outcome, SessionRequest, SessionResult, Usage
from butlers.sessions import log_rows as log_store
from butlers.sessions.fleet_budget import FleetBudget
from butlers.sessions.limit import Claim, Limit
from butlers.sessions.log_rows import CUT_SHORT, Opening

log = structlog.get_logger()

RESERVED = Usage(input_tokens=20_000, output_tokens=2_000, cached_tokens=0)


@dataclass(frozen=True, slots=True)
class Budget:
    config: BudgetConfig
    prices: PriceTable
    zone: ZoneInfo
    fleet: FleetBudget | None = None
    _warned: set[str] = field(default_factory=set, init=False)

    async def open(
        self, connection: Connection, session: SessionRequest, opening: Opening, now: datetime
    ) -> None:
        """Write the session down with what it may use, or raise that nothing is left for it."""
        claim = Claim(_tokens(RESERVED), self._reserved(opening.model))
        opening = replace(opening, reserved_tokens=claim.tokens, reserved_usd=claim.usd)
        if claim.usd is None:
            self._mind_the_price(opening.model)
        if self.limit.exists:
            await log_store.lock_budget(connection)
            spent = await log_store.spent_since(connection, self.limit.day_of(now))
            self.limit.check(spent, claim, now)
        if self.fleet is not None:
            self.fleet.reserve(session.session_id, claim, now)
        await log_store.open_session(connection, session, opening)

    @property
    def limit(self) -> Limit:
        config = self.config
        return Limit("today's budget", config.daily_usd, config.daily_tokens, self.zone)

    @property
    def _limits(self) -> tuple[Limit, ...]:
        return (self.limit, self.fleet.limit) if self.fleet else (self.limit,)

    def _reserved(self, model: str | None) -> Decimal | None:
        """Of a model that is not known yet, what the dearest would take: else many at once take nothing."""
        if model is None and any(limit.usd is not None for limit in self._limits):
            return max(
                (price.of(RESERVED) or Decimal(0) for price in self.prices.models.values()),
                default=None,
            )
        return self.prices.cost(model, RESERVED)

    def _mind_the_price(self, model: str | None) -> None:
        """Said once: dollars are set, and tokens bind in their place."""
        bound = [limit.tokens_without_price for limit in self._limits if limit.usd is not None]
        if not bound or (name := model or "") in self._warned:
            return
        self._warned.add(name)
        log.warning(
            "the price of the model is unknown, so tokens bind in place of dollars",
            model=model,
            daily_tokens=bound,
            hint="add the model to prices.toml",
        )

    def give_back(self, session_id: UUID) -> None:
        """It was never written down, so it does not begin and takes nothing."""
        self._settle(session_id, Claim(0, None))

    async def refuse(
        self, connection: Connection, session: SessionRequest, opening: Opening, why: str
    ) -> None:
        """Keep the refusal on record."""
        await log_store.open_session(connection, session, opening)
        refused = SessionResult(Outcome.OVER_BUDGET, "", error=why)
        await log_store.close_session(connection, session.session_id, refused, 0)

    def settle(self, session_id: UUID, result: SessionResult, cost: Decimal | None) -> None:
        """Tell the fleet's ledger what it took; the butler's own is the session log."""
        usage = result.usage
        known = usage.input_tokens is not None and usage.output_tokens is not None
        if known and cost is None:  # where the configuration names no model, this is known only now
            self._mind_the_price(result.model)
        used = Claim(_tokens(usage), cost) if known else None
        self._settle(session_id, used, at_least=result.outcome in CUT_SHORT)

    def _settle(self, session_id: UUID, used: Claim | None, *, at_least: bool = False) -> None:
        if self.fleet is None:
            return
        try:
            self.fleet.settle(session_id, used, at_least=at_least)
        except OSError as error:  # it stays as reserved; the session's own end matters more
            log.warning(
                "the fleet's ledger was not settled", session=str(session_id), error=str(error)
            )

    def cost(self, result: SessionResult, model: str | None) -> Decimal | None:
        """By our own table; by what the CLI says where the table does not know the model."""
        known = self.prices.cost(result.model or model, result.usage)
        return result.usage.cost_usd if known is None else known


def _tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)
