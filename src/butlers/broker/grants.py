"""Session tokens of the broker, and the limits that each request of a session has to fit into."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from butlers.broker.ledger import Ledger, Total
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError

PREFIX = "butlers-"
LONGEST_WAIT_S = 120.0  # for requests of other sessions to end, where together they would not fit


class TokenRefused(ButlersError):
    """The session token is unknown, has expired or is not bound to a session yet."""

    code = "broker_token_refused"


class LimitReached(ButlersError):
    """A limit of the session, its butler or the fleet is used up."""

    code = "broker_limit_reached"


class Credentials(Protocol):
    """The credential store of the butler whose session asks."""

    async def resolve(self, name: str, *, env: str | None = None) -> str | None: ...


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one session; None is no limit."""

    max_turns: int | None = None  # requests to a model
    max_tokens: int | None = None
    max_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class DayLimit:
    """A limit of a day that began at `since`, for one butler or (None) for the fleet."""

    name: str  # as people read it: "today's budget of health"
    since: Callable[[datetime], datetime]
    butler: str | None
    tokens: int | None = None
    usd: Decimal | None = None
    tokens_without_price: int | None = None  # binds models whose price is unknown


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """Everything that a session's token stands for."""

    session: str
    butler: str
    provider: str
    credentials: Credentials = field(repr=False, compare=False)
    expires_at: float  # by the monotonic clock
    models: tuple[str, ...] = ()  # names or parts of names; empty: any model
    limits: SessionLimits = SessionLimits()
    days: tuple[DayLimit, ...] = ()

    def allows(self, model: str | None) -> bool:
        """Accept a configured name, a release of it, and an alias such as `sonnet` inside a name."""
        return not self.models or (
            model is not None and any(name == model or name in model for name in self.models)
        )


@dataclass(slots=True)
class Grant:
    """One token: unbound while its process waits for a prompt, then bound to one session."""

    terms: TokenTerms | None = None
    used: Total = field(default_factory=Total)
    requests: int = 0
    stopped: str | None = None  # why the broker ended the session
    day_is_used_up: bool = False  # it was a limit of the day, not one of the session
    failure: str | None = None  # of the broker itself
    outage: str | None = None  # why the last request has no complete answer
    is_cut: bool = False  # the last answer began and did not end

    def note(self, status: int, provider: str) -> None:
        """Remember whether the provider has just answered or failed."""
        self.outage = f"{provider} answered HTTP {status}" if status >= 500 else None
        self.is_cut = False

    def note_cut(self, provider: str) -> None:
        self.outage, self.is_cut = f"{provider} cut its answer off", True


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected use of one request, before its answer says what it really was."""

    tokens: int
    usd: Decimal | None = None  # None: the price is unknown


class SessionTokens:
    """The living tokens of one broker, and the requests that are under way."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._pending: dict[object, tuple[Grant, TokenTerms, Estimate]] = {}  # requests under way
        self._settled = asyncio.Event()  # replaced each time a request has ended

    def mint(self, terms: TokenTerms | None = None) -> str:
        token = PREFIX + secrets.token_urlsafe(32)
        self._grants[token] = Grant(terms)
        return token

    def bind(self, token: str, terms: TokenTerms) -> Grant:
        grant = self._grants[token]
        grant.terms = terms
        return grant

    def revoke(self, token: str) -> Grant | None:
        """Make the token worthless and return what it used."""
        return self._grants.pop(token, None)

    def find(self, token: str | None) -> tuple[Grant, TokenTerms]:
        grant = self._grants.get(token or "")
        if grant is None or grant.terms is None:
            raise TokenRefused
        if self._clock.monotonic() >= grant.terms.expires_at:
            raise TokenRefused("the session token has expired")
        return grant, grant.terms

    async def admit(self, grant: Grant, estimate: Estimate) -> object:
        """Take room for a request, or raise LimitReached. Waits for others that hold the room."""
        terms = grant.terms
        assert terms is not None
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                while not self._has_room(grant, terms, estimate):
                    await self._settled.wait()
        except TimeoutError:
            why = "other sessions hold the rest of the budget"
            grant.stopped, grant.day_is_used_up = why, True
            raise LimitReached(why) from None
        ticket = object()
        grant.requests += 1
        self._pending[ticket] = (grant, terms, estimate)
        return ticket

    def settle(self, ticket: object) -> None:
        """Give the room of a request back, after its use was written to the ledger."""
        self._pending.pop(ticket, None)
        self._settled.set()
        self._settled = asyncio.Event()

    async def wait_idle(self, grant: Grant, timeout_s: float) -> None:
        """Wait until the last request of a session that has ended is in the ledger."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(one is grant for one, _, _ in self._pending.values()):
                    await self._settled.wait()

    def _has_room(self, grant: Grant, terms: TokenTerms, estimate: Estimate) -> bool:
        """Raise LimitReached if a limit is used up by what was metered."""
        if (why := self._session_reason(grant, terms.limits)) is not None:
            grant.stopped = why
            raise LimitReached(why)
        if (why := self._days_reason(terms, None)) is not None:
            grant.stopped, grant.day_is_used_up = why, True
            raise LimitReached(why)
        return not self._pending or self._days_reason(terms, estimate) is None

    def _session_reason(self, grant: Grant, limits: SessionLimits) -> str | None:
        used = grant.used
        if limits.max_turns is not None and grant.requests >= limits.max_turns:
            return f"the session has used its {limits.max_turns} turns"
        if limits.max_tokens is not None and used.tokens >= limits.max_tokens:
            return f"the session has used its {limits.max_tokens:,} tokens"
        if limits.max_usd is not None and used.usd >= limits.max_usd:
            return f"the session has used its ${limits.max_usd}"
        return None

    def _days_reason(self, terms: TokenTerms, more: Estimate | None) -> str | None:
        """Name the day's limit that is used up: by what was metered, or together with all that runs."""
        reasons = (self._day_reason(day, more) for day in terms.days)
        return next((why for why in reasons if why is not None), None)

    def _day_reason(self, day: DayLimit, more: Estimate | None) -> str | None:
        total = self._ledger.total(day.since(self._clock.now()), day.butler)
        tokens, usd, unpriced = self._running(day, more)
        if day.tokens is not None and total.tokens + tokens >= day.tokens:
            return f"{day.name} of {day.tokens:,} tokens is used up ({total.tokens:,} used)"
        if day.usd is None:
            return None
        # Tokens of unknown price take their share of the dollars.
        most = None if day.tokens is not None else day.tokens_without_price
        share = day.usd * (total.unpriced + unpriced) / most if most else Decimal(0)
        if total.usd + usd + share < day.usd:
            return None
        note = (
            f", and {total.unpriced:,} tokens of unknown price" if most and total.unpriced else ""
        )
        return f"{day.name} of ${day.usd} is used up (${total.usd:.2f} used{note})"

    def _running(self, day: DayLimit, more: Estimate | None) -> tuple[int, Decimal, int]:
        """Sum the estimates of running requests and this one: tokens, dollars, unpriced tokens."""
        if more is None:
            return 0, Decimal(0), 0
        running = [more] + [
            estimate
            for _, terms, estimate in self._pending.values()
            if day.butler in (None, terms.butler)
        ]
        return (
            sum(one.tokens for one in running),
            sum((one.usd for one in running if one.usd is not None), Decimal(0)),
            sum(one.tokens for one in running if one.usd is None),
        )
