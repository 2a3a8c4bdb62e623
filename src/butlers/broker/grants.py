"""Session tokens of the broker, and the limits that each request of a session has to fit into."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

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
class Terms:
    """Everything that a session's token stands for."""

    session: str
    butler: str
    provider: str
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

    terms: Terms | None = None
    used: Total = field(default_factory=Total)
    requests: int = 0
    stopped: str | None = None  # why the broker ended the session


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected use of one request, before its answer says what it really was."""

    tokens: int
    usd: Decimal | None = None  # None: the price is unknown


class Grants:
    """The living tokens of one broker, and the requests that are under way."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._pending: dict[object, tuple[Terms, Estimate]] = {}  # requests under way
        self._settled = asyncio.Condition()

    def mint(self, terms: Terms | None = None) -> str:
        token = PREFIX + secrets.token_urlsafe(32)
        self._grants[token] = Grant(terms)
        return token

    def bind(self, token: str, terms: Terms) -> None:
        self._grants[token].terms = terms

    def revoke(self, token: str) -> Grant | None:
        """Make the token worthless and return what it used."""
        return self._grants.pop(token, None)

    def find(self, token: str | None) -> tuple[Grant, Terms]:
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
        ticket = object()
        async with asyncio.timeout(LONGEST_WAIT_S), self._settled:
            while True:
                if (why := self._reason(grant, terms, None)) is not None:
                    grant.stopped = why
                    raise LimitReached(why)
                if not self._pending or self._reason(grant, terms, estimate) is None:
                    break
                await self._settled.wait()
            grant.requests += 1
            self._pending[ticket] = (terms, estimate)
        return ticket

    async def settle(self, ticket: object) -> None:
        async with self._settled:
            self._pending.pop(ticket, None)
            self._settled.notify_all()

    def _reason(self, grant: Grant, terms: Terms, more: Estimate | None) -> str | None:
        """Name the limit that is used up: by what was metered, or together with all that runs."""
        limits, used = terms.limits, grant.used
        if limits.max_turns is not None and grant.requests >= limits.max_turns:
            return f"the session has used its {limits.max_turns} turns"
        if limits.max_tokens is not None and used.tokens >= limits.max_tokens:
            return f"the session has used its {limits.max_tokens:,} tokens"
        if limits.max_usd is not None and used.usd >= limits.max_usd:
            return f"the session has used its ${limits.max_usd}"
        for day in terms.days:
            if (why := self._day_reason(day, more)) is not None:
                return why
        return None

    def _day_reason(self, day: DayLimit, more: Estimate | None) -> str | None:
        total = self._ledger.total(day.since(self._clock.now()), day.butler)
        tokens, usd, unpriced = self._running(day, more)
        if day.tokens is not None and total.tokens + tokens >= day.tokens:
            return f"{day.name} of {day.tokens:,} tokens is used up ({total.tokens:,} used)"
        if day.usd is None:
            return None
        if total.usd + usd >= day.usd:
            return f"{day.name} of ${day.usd} is used up (${total.usd:.2f} used)"
        most = day.tokens_without_price
        if day.tokens is None and most is not None and total.unpriced + unpriced >= most:
            return (
                f"{day.name} of ${day.usd} is used up: {total.unpriced:,} tokens of models whose"
                f" price is unknown, of at most {most:,}"
            )
        return None

    def _running(self, day: DayLimit, more: Estimate | None) -> tuple[int, Decimal, int]:
        """Sum the estimates of running requests and this one: tokens, dollars, unpriced tokens."""
        if more is None:
            return 0, Decimal(0), 0
        running = [more] + [
            estimate
            for terms, estimate in self._pending.values()
            if day.butler in (None, terms.butler)
        ]
        return (
            sum(one.tokens for one in running),
            sum((one.usd for one in running if one.usd is not None), Decimal(0)),
            sum(one.tokens for one in running if one.usd is None),
        )


@contextmanager
def minted(grants: Grants, terms: Terms) -> Iterator[str]:
    """A token for the length of a block."""
    token = grants.mint(terms)
    try:
        yield token
    finally:
        grants.revoke(token)
