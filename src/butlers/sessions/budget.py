"""Daily budgets of a butler and of the whole fleet.

With the key broker, each request to a model is checked and counted while the session runs: a session starts
if something of the day is left by the broker's ledger, and reserves nothing.

Without it, the use of a session is unknown before it ends, so a fixed amount is reserved when it starts and
replaced by the real use when it ends. The reservation has to fit into the butler's own budget and into the
fleet's.

A limit in dollars cannot bind a model of unknown price, so tokens bind it instead. Where no number of
tokens is set, it is what the dollars would buy on an expensive model, less what sessions of known price used.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import structlog

from butlers.broker.grants import DayLimit
from butlers.broker.ledger import Ledger
from butlers.config.butler import BudgetConfig
from butlers.config.files import PRIVATE_FILE, make_private_folder
from butlers.config.fleet import FleetConfig
from butlers.config.prices import PriceTable
from butlers.db.database import Connection
from butlers.domain.errors import OverBudget
from butlers.domain.session import Outcome, SessionRequest, SessionResult, Usage
from butlers.sessions import session_log
from butlers.sessions.session_log import CUT_SHORT, SessionOpening, Spent

log = structlog.get_logger()

N = TypeVar("N", int, Decimal)
TOKENS_PER_DOLLAR = 50_000  # the most expensive model of the first price table: $0.45 for 22,000
FOLDER = "budget"
KEPT = 31  # days
RESERVED = Usage(input_tokens=20_000, output_tokens=2_000, cached_tokens=0)


@dataclass(frozen=True, slots=True)
class Claim:
    """An amount that a session used or may use."""

    tokens: int
    usd: Decimal | None  # None: unknown


LEAST_CLAIM = Claim(1, Decimal("0.000001"))  # fits as long as anything is left


@dataclass(frozen=True, slots=True)
class DailyLimit:
    name: str  # how errors call it
    usd: Decimal | None
    tokens: int | None
    zone: ZoneInfo  # of the midnights that bound the day
    hint: str | None = None

    @property
    def exists(self) -> bool:
        return self.usd is not None or self.tokens is not None

    @property
    def tokens_without_price(self) -> int | None:
        """The limit on tokens of a model of unknown price."""
        if self.tokens is not None or self.usd is None:
            return self.tokens
        return int(self.usd * TOKENS_PER_DOLLAR)

    def check(self, spent: Spent, claim: Claim, now: datetime) -> None:
        """Raise ``OverBudget``, with the time of the next budget, if the claim does not fit.

        If the limit is smaller than one reservation, the first session of the day takes all of it.
        """
        tokens, usd = self.tokens, self.usd
        if tokens is not None and spent.tokens + _within(claim.tokens, tokens) > tokens:
            used = f"{spent.tokens:,} so far"
            why = _refusal(
                f"{self.name} of {tokens:,} tokens",
                used,
                f"a session reserves {claim.tokens:,}",
                is_used_up=spent.tokens >= tokens,
            )
        elif usd is not None and self._taken(spent) + _within(self._claimed(claim), usd) > usd:
            used = f"${spent.usd:.2f} so far{self._unpriced_note(spent)}"
            why = _refusal(
                f"{self.name} of ${usd}",
                used,
                f"a session reserves ${self._claimed(claim):.2f}",
                is_used_up=self._taken(spent) >= usd,
            )
        else:
            return
        error = OverBudget(why, hint=self.hint)
        error.until = self.next_day(now)
        raise error

    def _taken(self, spent: Spent) -> Decimal:
        return spent.usd + self._worth(spent.unpriced)

    def _claimed(self, claim: Claim) -> Decimal:
        return self._worth(claim.tokens) if claim.usd is None else claim.usd

    def _worth(self, tokens: int) -> Decimal:
        """Dollars that tokens of unknown price take: none where the owner has set a limit on tokens."""
        return Decimal(0) if self.tokens is not None else Decimal(tokens) / TOKENS_PER_DOLLAR

    def _unpriced_note(self, spent: Spent) -> str:
        if not spent.unpriced or self.tokens is not None:
            return ""
        whole = self.tokens_without_price
        return f", and {spent.unpriced:,} tokens of unknown price; all of it is {whole:,} tokens"

    def day_of(self, now: datetime) -> datetime:
        return now.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)

    def next_day(self, now: datetime) -> datetime:
        noon = self.day_of(now).replace(hour=12) + timedelta(days=1)  # past any clock change
        return noon.replace(hour=0)


def _refusal(limit: str, used: str, reserved: str, *, is_used_up: bool) -> str:
    if is_used_up:
        return f"{limit} is used up ({used})"
    return f"{limit} has no room for another session ({used}; {reserved})"


def _within(claimed: N, limit: N) -> N:
    """Cap the claim at the limit, but reject a claim on a zero limit."""
    return min(claimed, limit) if limit else claimed


@dataclass(frozen=True, slots=True)
class FleetBudget:
    """The fleet's budget for a day: a file in the home that every butler's process appends to under a lock.

    Butlers cannot read each other's session logs. In this file each session has a line when it is reserved
    and another when it has ended. Its last line counts, so a session whose daemon was killed counts as
    reserved.
    """

    home: Path
    limit: DailyLimit
    _open: dict[UUID, tuple[Path, Claim]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, fleet: FleetConfig, home: Path) -> FleetBudget:
        hint = "raise daily_usd or daily_tokens in fleet.toml, or wait until tomorrow"
        zone = ZoneInfo(fleet.timezone)
        name = "the fleet's budget for today"
        return cls(home, DailyLimit(name, fleet.daily_usd, fleet.daily_tokens, zone, hint))

    def reserve(self, session_id: UUID, claim: Claim, now: datetime) -> None:
        """Reserve the claim, or raise ``OverBudget``."""
        if not self.limit.exists:
            return
        path = self.home / FOLDER / f"{self.limit.day_of(now):%Y-%m-%d}.jsonl"
        if not path.exists():
            self._begin_day(path)
        with _locked(path) as descriptor:
            self.limit.check(_sum(path), claim, now)
            _write(descriptor, session_id, claim)
        self._open[session_id] = (path, claim)

    def settle(self, session_id: UUID, used: Claim | None, *, at_least: bool = False) -> None:
        """Replace the reservation by the use; None: unknown. ``at_least``: it may have used more."""
        path, reserved = self._open.pop(session_id, (None, None))
        if path is None or reserved is None or used is None:
            return
        if at_least:
            usd = max((one for one in (used.usd, reserved.usd) if one is not None), default=None)
            used = Claim(max(used.tokens, reserved.tokens), usd)
        with _locked(path) as descriptor:
            _write(descriptor, session_id, used)

    def _begin_day(self, path: Path) -> None:
        make_private_folder(path.parent)
        for old in sorted(path.parent.glob("*.jsonl"))[:-KEPT]:
            old.unlink(missing_ok=True)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Lock the file while a line is written; the kernel releases the lock if we are killed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, session_id: UUID, claim: Claim) -> None:
    usd = None if claim.usd is None else str(claim.usd)
    os.write(descriptor, f"{json.dumps([str(session_id), claim.tokens, usd])}\n".encode())


def _sum(path: Path) -> Spent:
    last: dict[str, Claim] = {}
    for line in path.read_text().splitlines():
        try:
            session_id, tokens, usd = json.loads(line)
        except ValueError:
            continue  # its writer was killed before its session could start
        last[session_id] = Claim(tokens, None if usd is None else Decimal(usd))
    return Spent(
        sum(one.tokens for one in last.values()),
        sum((one.usd or Decimal(0) for one in last.values()), Decimal(0)),
        sum(one.tokens for one in last.values() if one.usd is None),
    )


@dataclass(frozen=True, slots=True)
class Budget:
    """A butler's daily budget, together with the fleet's."""

    config: BudgetConfig
    prices: PriceTable
    zone: ZoneInfo
    fleet: FleetBudget | None = None
    butler: str = ""
    ledger: Ledger | None = None  # of the key broker
    _warned: set[str] = field(default_factory=set, init=False)

    async def open(
        self,
        connection: Connection,
        session: SessionRequest,
        opening: SessionOpening,
        now: datetime,
    ) -> None:
        """Write the session to the log with its reservation, or raise ``OverBudget``."""
        if self.ledger is not None:
            for limit, butler in self._scopes:
                total = self.ledger.total(limit.day_of(now), butler)
                spent = Spent(total.tokens, total.usd, total.unpriced)
                limit.check(spent, LEAST_CLAIM, now)
            await session_log.open_session(connection, session, opening)
            return
        claim = Claim(_tokens(RESERVED), self._reserved(opening.model))
        opening = replace(opening, reserved_tokens=claim.tokens, reserved_usd=claim.usd)
        if claim.usd is None:
            self._warn_of_unknown_price(opening.model)
        if self.limit.exists:
            await session_log.lock_budget(connection)
            spent = await session_log.spent_since(connection, self.limit.day_of(now))
            self.limit.check(spent, claim, now)
        if self.fleet is not None:
            self.fleet.reserve(session.session_id, claim, now)
        await session_log.open_session(connection, session, opening)

    @property
    def limit(self) -> DailyLimit:
        config = self.config
        return DailyLimit("today's budget", config.daily_usd, config.daily_tokens, self.zone)

    @property
    def _limits(self) -> tuple[DailyLimit, ...]:
        return (self.limit, self.fleet.limit) if self.fleet else (self.limit,)

    @property
    def _scopes(self) -> list[tuple[DailyLimit, str | None]]:
        """The limits that are set, each with the butler that it is for; None: all of them."""
        scopes = zip(self._limits, (self.butler, None), strict=False)
        return [(limit, butler) for limit, butler in scopes if limit.exists]

    def days(self) -> tuple[DayLimit, ...]:
        """Return the limits of the day, as the key broker checks them at each request."""
        return tuple(
            DayLimit(
                name=limit.name,
                since=limit.day_of,
                butler=butler,
                tokens=limit.tokens,
                usd=limit.usd,
                tokens_without_price=limit.tokens_without_price,
            )
            for limit, butler in self._scopes
        )

    def _reserved(self, model: str | None) -> Decimal | None:
        """Price the reservation. If the model is not known yet, assume the most expensive one: otherwise
        many sessions at once would reserve nothing."""
        if model is None and any(limit.usd is not None for limit in self._limits):
            return max(
                (price.of(RESERVED) or Decimal(0) for price in self.prices.models.values()),
                default=None,
            )
        return self.prices.cost(model, RESERVED)

    def _warn_of_unknown_price(self, model: str | None) -> None:
        """Warn once per model that tokens bind in place of dollars."""
        bound = [limit.tokens_without_price for limit in self._limits if limit.usd is not None]
        if not bound or (name := model or "") in self._warned:
            return
        self._warned.add(name)
        log.warning(
            "price of the model unknown; its budget is counted in tokens",
            model=model,
            daily_tokens=bound,
            hint="add the model to prices.toml",
        )

    def give_back(self, session_id: UUID) -> None:
        """Release the reservation of a session that was not written to the log and does not start."""
        self._settle(session_id, Claim(0, None))

    async def refuse(
        self, connection: Connection, session: SessionRequest, opening: SessionOpening, why: str
    ) -> None:
        """Write the refused session to the log."""
        await session_log.open_session(connection, session, opening)
        refused = SessionResult(Outcome.OVER_BUDGET, "", error=why)
        await session_log.close_session(connection, session.session_id, refused, 0)

    def settle(self, session_id: UUID, result: SessionResult, cost: Decimal | None) -> None:
        """Write the use to the fleet's ledger; the butler's own is the session log."""
        usage = result.usage
        known = usage.input_tokens is not None and usage.output_tokens is not None
        if known and cost is None:  # without a configured model, it is known only now
            self._warn_of_unknown_price(result.model)
        used = Claim(_tokens(usage), cost) if known else None
        self._settle(session_id, used, at_least=result.outcome in CUT_SHORT)

    def _settle(self, session_id: UUID, used: Claim | None, *, at_least: bool = False) -> None:
        if self.fleet is None:
            return
        try:
            self.fleet.settle(session_id, used, at_least=at_least)
        except OSError as error:  # the reservation stays; the session's own end matters more
            log.warning("fleet budget not settled", session=str(session_id), error=str(error))

    def cost(self, result: SessionResult, model: str | None) -> Decimal | None:
        """Return the cost by our price table, else the CLI's own figure."""
        known = self.prices.cost(result.model or model, result.usage)
        return result.usage.cost_usd if known is None else known


def _tokens(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)
