"""Exchange rates that the person entered or imported. An unknown rate is reported, never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from butlers.domain.errors import InvalidArguments
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    Money,
    MoneyText,
    read_currency,
    read_day,
    read_money,
    read_ratio,
    round_to_minor,
    tool,
    uuid7,
)

from .settings import home_currency

MAX_AGE_DAYS = 366  # an older rate says nothing about the day


@dataclass(frozen=True, slots=True)
class Rate:
    rate: Decimal
    day: date


@tool(callers=SESSIONS)
async def rate_save(
    ctx: CallContext, base: str, quote: str, rate: str, day: Day = "today"
) -> dict[str, Any]:
    """Store an exchange rate of a day: one unit of base costs `rate` units of quote."""
    first, second = read_currency(base), read_currency(quote)
    if first == second:
        raise InvalidArguments("base and quote are the same currency")
    factor, on = read_ratio(rate), read_day(ctx, day, prefer="past")
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO exchange_rates (id, base, quote, day, rate) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (base, quote, day) DO UPDATE SET rate = excluded.rate RETURNING id
        """,
        uuid7(),
        first,
        second,
        on,
        factor,
    )
    text = f"Saved: 1 {first} = {factor:f} {second} on {on:%-d %B %Y}."
    return {"id": str(row["id"]), "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def money_convert(
    ctx: CallContext, amount: MoneyText, to: str, day: Day = "today"
) -> dict[str, Any]:
    """Convert an amount with the stored rate of a day. Fails when no rate is known."""
    given, target = read_money(amount, home_currency(ctx)), read_currency(to)
    on = read_day(ctx, day, prefer="past")
    rate = await find_rate(ctx, given.currency, target, on)
    if rate is None:
        raise InvalidArguments(
            f"no rate from {given.currency} to {target} is known for {on:%-d %B %Y}",
            hint=f'store one with rate_save, base "{given.currency}", quote "{target}"',
        )
    result = Money(round_to_minor(given.amount * rate.rate, target), target)
    return {
        "amount": str(result),
        "rate_day": rate.day.isoformat(),
        "text": f"{given} = {result} (rate of {rate.day:%-d %B %Y})",
    }


async def find_rate(ctx: CallContext, base: str, quote: str, day: date) -> Rate | None:
    """Return the newest rate of the year up to the day, in either direction."""
    if base == quote:
        return Rate(Decimal(1), day)
    row = await ctx.connection.fetchrow(
        """
        SELECT base, rate, day FROM exchange_rates
        WHERE ((base = $1 AND quote = $2) OR (base = $2 AND quote = $1))
          AND day <= $3 AND day >= $3 - $4::int
        ORDER BY day DESC, (base = $1) DESC LIMIT 1
        """,
        base,
        quote,
        day,
        MAX_AGE_DAYS,
    )
    if row is None:
        return None
    return Rate(row["rate"] if row["base"] == base else 1 / row["rate"], row["day"])


TOOLS = (rate_save, money_convert)
