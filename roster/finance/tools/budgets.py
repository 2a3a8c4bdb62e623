"""Tools for budgets per category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from butlers.domain.errors import NotFound
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    Money,
    MoneyText,
    format_amount,
    read_period,
    shown_source,
    tool,
    uuid7,
)

from .categories import Category, read_category
from .rates import find_rate
from .rows import today_of
from .settings import read_amount
from .spending import spending_of


@tool(callers=SESSIONS)
async def budget_save(
    ctx: CallContext,
    category: Category,
    amount: MoneyText,
    period: Literal["week", "month", "year"] = "month",
) -> dict[str, Any]:
    """Set the budget of a category. It replaces an earlier one."""
    money, name = read_amount(ctx, amount), read_category(category)
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO budgets (id, category, amount, currency, period) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (category) DO UPDATE
        SET amount = excluded.amount, currency = excluded.currency, period = excluded.period
        RETURNING id
        """,
        uuid7(),
        name,
        money.amount,
        money.currency,
        period,
    )
    return {"id": str(row["id"]), "text": f"Budget: {name} {money} per {period}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def budget_status(ctx: CallContext, category: Category | None = None) -> dict[str, Any]:
    """Compare each budget with the spending of its current week, month or year."""
    name = read_category(category) if category else None
    rows = await ctx.connection.fetch(
        "SELECT * FROM budgets WHERE $1::text IS NULL OR category = $1 ORDER BY category", name
    )
    if name and not rows:
        raise NotFound(f"there is no budget for {name}", hint="set one with budget_save")
    budgets = [await _status(ctx, row) for row in rows]
    text = "\n".join(budget["text"] for budget in budgets)
    return {"budgets": budgets, "text": text or "No budgets yet."}


async def _status(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    spent = await spending_of(ctx, read_period(ctx, f"this {row['period']}"), of=row["category"])
    rate = await find_rate(ctx, row["currency"], spent.currency, today_of(ctx))
    limit = Money(row["amount"], row["currency"])
    said = f"{row['category']}: {spent.money} of {limit} this {row['period']}"
    shown: dict[str, Any] = {
        "category": row["category"],
        "limit": format_amount(row["amount"], row["currency"]),
        "currency": row["currency"],
        "period": row["period"],
        "spent": format_amount(spent.total, spent.currency),
        **shown_source(ctx, row),
    }
    if rate is None:
        note = f"no rate from {row['currency']} to {spent.currency} is known"
        return {**shown, "text": f"{said} ({note})."}
    left = Money(row["amount"] * rate.rate - spent.total, spent.currency)
    over = left.amount < 0
    note = f"{Money(abs(left.amount), left.currency)} {'over' if over else 'left'}"
    return {
        **shown,
        "left": format_amount(left.amount, left.currency),
        "exceeded": over,
        "text": f"{said}, {note}.",
    }


TOOLS = (budget_save, budget_status)
