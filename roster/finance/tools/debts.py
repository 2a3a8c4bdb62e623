"""Tools for shares of expenses that other people owe."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from butlers.domain.errors import NotFound
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    Money,
    format_amount,
    read_day,
    shown_source,
    tool,
)

from .rows import today_of
from .splits import Person

LONGEST = 200


@tool(callers=SESSIONS, effect=Effect.READ)
async def debt_list(ctx: CallContext, person: Person | None = None) -> dict[str, Any]:
    """List the open shares that people owe from split expenses, with totals per person."""
    rows = await ctx.connection.fetch(
        f"""
        SELECT p.owed_by, p.amount, t.currency, t.description, t.posted_on, t.trust, t.sender
        FROM transaction_parts AS p JOIN transactions AS t ON t.id = p.transaction_id
        WHERE p.owed_by IS NOT NULL AND p.settled_on IS NULL
          AND ($1::text IS NULL OR lower(p.owed_by) = lower($1))
        ORDER BY lower(p.owed_by), t.posted_on, p.id LIMIT {LONGEST}
        """,
        person,
    )
    totals: dict[tuple[str, str], Decimal] = {}
    for row in rows:
        key = (row["owed_by"], row["currency"])
        totals[key] = totals.get(key, Decimal(0)) + row["amount"]
    shares = [
        {
            "person": row["owed_by"],
            "amount": format_amount(row["amount"], row["currency"]),
            "currency": row["currency"],
            "description": row["description"],
            "day": row["posted_on"].isoformat(),
            **shown_source(ctx, row),
        }
        for row in rows
    ]
    lines = [f"{name} owes {Money(total, code)}" for (name, code), total in totals.items()]
    return {"shares": shares, "text": "\n".join(lines) or "No one owes you anything."}


@tool(callers=SESSIONS)
async def debt_settle(ctx: CallContext, person: Person, day: Day = "today") -> dict[str, Any]:
    """Mark all open shares of a person as paid back."""
    on = read_day(ctx, day, prefer="past")
    rows = await ctx.connection.fetch(
        """
        UPDATE transaction_parts AS p SET settled_on = $2 FROM transactions AS t
        WHERE t.id = p.transaction_id AND p.settled_on IS NULL AND lower(p.owed_by) = lower($1)
        RETURNING p.amount, t.currency
        """,
        person.strip(),
        on,
    )
    if not rows:
        raise NotFound(f"{person} owes nothing", hint="debt_list lists open shares")
    totals: dict[str, Decimal] = {}
    for row in rows:
        totals[row["currency"]] = totals.get(row["currency"], Decimal(0)) + row["amount"]
    sums = " and ".join(str(Money(total, code)) for code, total in totals.items())
    when = "today" if on == today_of(ctx) else f"{on:%-d %B %Y}"
    return {"settled": len(rows), "text": f"Settled: {person} paid back {sums}, {when}."}


TOOLS = (debt_list, debt_settle)
