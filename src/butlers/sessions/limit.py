"""What may be used in a day, and whether one more session fits into it.

Dollars can not bind a model whose price nobody knows: then tokens do. Where no number of tokens is set, it
is as many as the dollars would buy on a dear model.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeVar
from zoneinfo import ZoneInfo

from butlers.domain.errors import OverBudget
from butlers.store.sessions import Spent

N = TypeVar("N", int, Decimal)
TOKENS_OF_A_DOLLAR = 50_000  # the dearest of the first price table: $0.45 for 22,000


@dataclass(frozen=True, slots=True)
class Claim:
    """What a session takes, or may take."""

    tokens: int
    usd: Decimal | None  # None: nobody knows


@dataclass(frozen=True, slots=True)
class Limit:
    whose: str
    usd: Decimal | None
    tokens: int | None
    zone: ZoneInfo  # the day is from midnight to midnight there
    hint: str | None = None

    @property
    def exists(self) -> bool:
        return self.usd is not None or self.tokens is not None

    def tokens_for(self, claim: Claim) -> int | None:
        if self.tokens is not None or self.usd is None or claim.usd is not None:
            return self.tokens
        return int(self.usd * TOKENS_OF_A_DOLLAR)

    def check(self, spent: Spent, claim: Claim, now: datetime) -> None:
        """Raise that nothing is left for it, and until when.

        Of a limit smaller than what is reserved for one session, the first of the day takes all.
        """
        tokens, usd = self.tokens_for(claim), self.usd
        if tokens is not None and spent.tokens + _within(claim.tokens, tokens) > tokens:
            why = f"{self.whose} of {tokens:,} tokens is used up ({spent.tokens:,} so far)"
        elif usd is not None and spent.usd + _within(claim.usd or Decimal(0), usd) > usd:
            why = f"{self.whose} of ${usd} is used up (${spent.usd:.2f} so far)"
        else:
            return
        error = OverBudget(why, hint=self.hint)
        error.until = self.next_day(now)
        raise error

    def day_of(self, now: datetime) -> datetime:
        return now.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)

    def next_day(self, now: datetime) -> datetime:
        noon = self.day_of(now).replace(hour=12) + timedelta(days=1)  # past any clock change
        return noon.replace(hour=0)


def _within(claimed: N, limit: N) -> N:
    """But of nothing at all, nothing can be taken."""
    return min(claimed, limit) if limit else claimed
