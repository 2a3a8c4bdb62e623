"""Lines of the morning brief and the evening review about money."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from butlers.sdk import CallContext, Money, read_period, shown_source

from .recurrence import next_on_or_after
from .rows import day_words, today_of
from .spending import spending_of

DAYS_AHEAD = 3


async def morning_lines(ctx: CallContext) -> Sequence[str]:
    """Return bills that are overdue or due soon, and subscriptions that renew."""
    today = today_of(ctx)
    rows = await ctx.connection.fetch(
        "SELECT * FROM bills WHERE status = 'active' AND kind <> 'income' ORDER BY next_due, payee"
    )
    lines = []
    for row in rows:
        is_bill = row["kind"] == "bill"
        due = row["next_due"]
        due = due if is_bill else next_on_or_after(due, row["repeats"], today)
        if due > today + timedelta(days=DAYS_AHEAD):
            continue
        shown_source(ctx, row)
        money = Money(row["amount"], row["currency"])
        word = "is overdue since" if due < today else "is due" if is_bill else "renews"
        lines.append(f"{row['payee']} ({money}) {word} {day_words(due, today)}.")
    return lines[:10]


async def evening_lines(ctx: CallContext) -> Sequence[str]:
    """Return the spending of the day."""
    spent = await spending_of(ctx, read_period(ctx, "today"))
    return [f"Spent today: {spent.money}."] if spent.count else []
