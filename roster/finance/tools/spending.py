"""Sums of spending in the home currency: the owner's parts of expenses, less refunds.

Foreign amounts are converted one by one with the stored rate of their day and rounded to the smallest unit,
so that groups add up to the total. What has no rate is listed apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from butlers.sdk import CallContext, Money, Period, round_to_minor

from .categories import known_category
from .rates import find_rate
from .settings import home_currency

GROUPS = {
    "category": "category",
    "merchant": "lower(coalesce(merchant, description))",
    "month": "to_char(posted_on, 'YYYY-MM')",
    "day": "posted_on::text",
}


@dataclass(slots=True)
class Spending:
    """Spending of a period; amounts are positive, a surplus of refunds is negative."""

    currency: str
    total: Decimal = Decimal(0)
    count: int = 0
    groups: dict[str, Decimal] = field(default_factory=dict)
    unconverted: dict[str, Decimal] = field(default_factory=dict)  # by currency without a rate

    @property
    def money(self) -> Money:
        return Money(self.total, self.currency)

    def add(self, group: str, amount: Decimal, count: int) -> None:
        self.total += amount
        self.count += count
        self.groups[group] = self.groups.get(group, Decimal(0)) + amount


async def spending_of(
    ctx: CallContext,
    period: Period,
    *,
    of: str | None = None,
    group_by: str = "category",
    incoming: bool = False,
) -> Spending:
    """Return the spending (or income) of a period, optionally of a category or of words such as "lunch"."""
    source = _INCOME if incoming else _EXPENSES
    # A plan for any period would read all rows for a single month.
    await ctx.connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
    rows = await ctx.connection.fetch(
        f"""
        SELECT {GROUPS[group_by]} AS name, currency, sum(amount) AS amount, count(DISTINCT id) AS count,
               CASE WHEN currency = $5 THEN NULL ELSE posted_on END AS day
        FROM ({source}) AS entries GROUP BY 1, 2, 5
        """,
        period.first_day,
        period.last_day,
        await _category(ctx, of),
        _query(of),
        home_currency(ctx),
    )
    found = Spending(home_currency(ctx))
    for row in rows:
        amount = await _converted(ctx, row["amount"], row["currency"], row["day"], found.currency)
        if amount is None:
            code = row["currency"]
            found.unconverted[code] = found.unconverted.get(code, Decimal(0)) + row["amount"]
        else:
            found.add(row["name"], amount, row["count"])
    found.groups = dict(sorted(found.groups.items(), key=lambda item: (-item[1], item[0])))
    return found


# $3: a category; $4: words, if the person named no category.
_MATCHES = """
    (($3::text IS NULL AND $4::text IS NULL) OR category = $3 OR category LIKE $3 || '/%'
     OR ($3::text IS NULL AND words @@ to_tsquery('simple', $4)))
"""
_EXPENSES = f"""
    SELECT * FROM (
        SELECT t.id, t.posted_on, t.currency, t.description, t.merchant, t.words,
               coalesce(p.category, t.category) AS category,
               CASE WHEN t.kind = 'refund' THEN -t.amount ELSE coalesce(p.amount, -t.amount) END AS amount
        FROM transactions AS t
        LEFT JOIN transaction_parts AS p ON p.transaction_id = t.id
        WHERE t.kind IN ('expense', 'refund') AND p.owed_by IS NULL AND t.posted_on BETWEEN $1 AND $2
    ) AS parts WHERE {_MATCHES}
"""
_INCOME = f"""
    SELECT id, posted_on, currency, description, merchant, category, amount FROM transactions
    WHERE kind = 'income' AND posted_on BETWEEN $1 AND $2 AND {_MATCHES}
"""


async def _category(ctx: CallContext, words: str | None) -> str | None:
    """Return the category that the words name: a built-in one, or one that is in use."""
    known = known_category(words) if words else None
    if words is None or known:
        return known
    name = " ".join(words.split()).casefold()
    used = await ctx.connection.fetchval(
        """
        SELECT $1 WHERE EXISTS (SELECT FROM transactions WHERE category = $1)
            OR EXISTS (SELECT FROM transaction_parts WHERE category = $1)
        """,
        name,
    )
    return str(used) if used else None


def _query(words: str | None) -> str | None:
    cleaned = "".join(char if char.isalnum() else " " for char in words or "").split()
    return " & ".join(f"{word}:*" for word in cleaned) or None


async def _converted(
    ctx: CallContext, amount: Decimal, currency: str, day: date | None, home: str
) -> Decimal | None:
    if currency == home or day is None:
        return amount
    rate = await find_rate(ctx, currency, home, day)
    return None if rate is None else round_to_minor(amount * rate.rate, home)
