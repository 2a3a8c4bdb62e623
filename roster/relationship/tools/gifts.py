"""Tools for gifts: ideas, bought, given, received."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from butlers.domain.errors import NotFound
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    Money,
    MoneyText,
    read_day,
    shown_source,
    tool,
    uuid7,
)

from .lookup import Row, find_or_create, find_person
from .settings import PersonText, Short, read_amount

GiftStatus = Literal["idea", "bought", "given", "received"]


@tool(callers=SESSIONS)
async def gift_save(
    ctx: CallContext,
    person: PersonText,
    what: Short,
    status: GiftStatus = "idea",
    occasion: Short | None = None,
    price: MoneyText | None = None,
    day: Day | None = None,
    id: UUID | None = None,  # noqa: A002  (named after the column)
) -> dict[str, Any]:
    """Store a gift (idea) for or from a person, or change the one with this id."""
    row, is_new = await find_or_create(ctx, person)
    money = read_amount(ctx, price) if price else None
    values = (
        id or uuid7(),
        row["id"],
        what.strip(),
        status,
        occasion,
        money.amount if money else None,
        money.currency if money else None,
        read_day(ctx, day, prefer="past") if day else None,
    )
    if id:
        stored = await ctx.connection.fetchval(
            """
            UPDATE gifts SET person_id = $2, what = $3, status = $4, occasion = coalesce($5, occasion),
                price = coalesce($6, price), currency = coalesce($7, currency), day = coalesce($8, day)
            WHERE id = $1 RETURNING id
            """,
            *values,
        )
        if stored is None:
            raise NotFound(f"there is no gift {id}", hint="gift_list returns the ids")
    else:
        await ctx.connection.execute(
            """
            INSERT INTO gifts (id, person_id, what, status, occasion, price, currency, day)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            """,
            *values,
        )
    word = {
        "idea": "Gift idea for",
        "bought": "Bought for",
        "given": "Gave",
        "received": "Got from",
    }
    name = f"{row['name']}{' (new)' if is_new else ''}"
    return {"id": str(values[0]), "text": f"{word[status]} {name}: {what.strip()}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def gift_list(
    ctx: CallContext, person: PersonText | None = None, status: GiftStatus | None = None
) -> dict[str, Any]:
    """List gifts and gift ideas, newest first."""
    who = await find_person(ctx, person) if person else None
    rows = await ctx.connection.fetch(
        """
        SELECT g.*, p.name FROM gifts AS g JOIN people AS p ON p.id = g.person_id
        WHERE ($1::uuid IS NULL OR g.person_id = $1) AND ($2::text IS NULL OR g.status = $2)
        ORDER BY g.id DESC LIMIT 100
        """,
        who and who["id"],
        status,
    )
    lines = [f"{row['name']}: {row['what']} ({row['status']}{_price(row)})" for row in rows]
    return {"gifts": [_shown(ctx, row) for row in rows], "text": "\n".join(lines) or "No gifts."}


def _price(row: Row) -> str:
    return f", {Money(row['price'], row['currency'])}" if row["price"] is not None else ""


def _shown(ctx: CallContext, row: Row) -> dict[str, Any]:
    optional = {"occasion": row["occasion"], "day": row["day"] and row["day"].isoformat()}
    return {
        "id": str(row["id"]),
        "person": row["name"],
        "what": row["what"],
        "status": row["status"],
        **({"price": str(Money(row["price"], row["currency"]))} if row["price"] else {}),
        **{key: value for key, value in optional.items() if value},
        **shown_source(ctx, row),
    }


TOOLS = (gift_save, gift_list)
