"""What may be used in a day, and whether one more session fits into it.

Dollars can not bind a model whose price nobody knows: then tokens do. Where no number of tokens is set, it
is as many as the dollars would buy on a dear model, less what others of a known price have taken of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeVar
from zoneinfo import ZoneInfo

from butlers.domain.errors import OverBudget
from butlers.sessions.log_rows import Spent

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

    @property
    def tokens_without_price(self) -> int | None:
        """What binds a model whose price nobody knows."""
        if self.tokens is not None or self.usd is None:
            return self.tokens
        return int(self.usd * TOKENS_OF_A_DOLLAR)

    def check(self, spent: Spent, claim: Claim, now: datetime) -> None:
        """Raise that nothing is left for it, and until when.

        Of a limit smaller than what is reserved for one session, the first of the day takes all.
        """
        tokens, usd = self.tokens, self.usd
        if tokens is not None and spent.tokens + _within(claim.tokens, tokens) > tokens:
            why = f"{self.whose} of {tokens:,} tokens is used up ({spent.tokens:,} so far)"
        elif usd is not None and self._taken(spent) + _within(self._claimed(claim), usd) > usd:
            why = (
                f"{self.whose} of ${usd} is used up (${spent.usd:.2f} so far{self._beside(spent)})"
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
        """What tokens without a price take of the dollars: nothing where the owner has set a number."""
        return Decimal(0) if self.tokens is not None else Decimal(tokens) / TOKENS_OF_A_DOLLAR

    def _beside(self, spent: Spent) -> str:
        if not spent.unpriced or self.tokens is not None:
            return ""
        whole = self.tokens_without_price
        return f", and {spent.unpriced:,} tokens of unknown price; all of it is {whole:,} tokens"

    def day_of(self, now: datetime) -> datetime:
        return now.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)

    def next_day(self, now: datetime) -> datetime:
        noon = self.day_of(now).replace(hour=12) + timedelta(days=1)  # past any clock change
        return noon.replace(hour=0)


def _within(claimed: N, limit: N) -> N:
    """But of nothing at all, nothing can be taken."""
    return min(claimed, limit) if limit else claimed
