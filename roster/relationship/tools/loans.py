"""Tools for money and things that were lent or borrowed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    Money,
    MoneyText,
    format_amount,
    read_day,
    shown_source,
    tool,
    uuid7,
)

from .lookup import Row, find_or_create, find_person
from .settings import PersonText, Short, day_words, read_amount, today_of

Direction = Literal["lent", "borrowed"]


@tool(callers=SESSIONS)
async def loan_add(
    ctx: CallContext,
    person: PersonText,
    direction: Direction,
    amount: MoneyText | None = None,
    item: Short | None = None,
    day: Day = "today",
    due: Day | None = None,
) -> dict[str, Any]:
    """Record that the owner lent something to a person, or borrowed it: an amount or an item."""
    if (amount is None) == (item is None):
        raise InvalidArguments("pass either amount or item", hint='amount "20 EUR" or item "drill"')
    row, is_new = await find_or_create(ctx, person)
    money = read_amount(ctx, amount) if amount else None
    loan_id, due_on = uuid7(), read_day(ctx, due) if due else None
    await ctx.connection.execute(
        """
        INSERT INTO loans (id, person_id, direction, amount, currency, item, lent_on, due_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        """,
        loan_id,
        row["id"],
        direction,
        money and money.amount,
        money and money.currency,
        item,
        read_day(ctx, day, prefer="past"),
        due_on,
    )
    name = f"{row['name']}{' (new)' if is_new else ''}"
    what, back = money or item, _due_words(ctx, due_on)
    verb = f"Lent {name} {what}" if direction == "lent" else f"Borrowed {what} from {name}"
    return {"id": str(loan_id), "text": f"{verb}{back}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def loan_list(
    ctx: CallContext,
    person: PersonText | None = None,
    direction: Direction | None = None,
    include_settled: bool = False,
) -> dict[str, Any]:
    """List loans, oldest first, with what each person still owes."""
    who = await find_person(ctx, person) if person else None
    rows = await open_loans(ctx, who, direction, include_settled=include_settled)
    lines = [_line(ctx, row) for row in rows]
    return {
        "loans": [_shown(ctx, row) for row in rows],
        "totals": {name: str(total) for name, total in _totals(rows).items()},
        "text": "\n".join(lines) or "No open loans.",
    }


@tool(callers=SESSIONS)
async def loan_settle(
    ctx: CallContext,
    person: PersonText,
    amount: MoneyText | None = None,
    item: Short | None = None,
    direction: Direction | None = None,
    day: Day = "today",
) -> dict[str, Any]:
    """Record that loans of a person were paid back or returned: all open ones, an amount, or an item."""
    who = await find_person(ctx, person)
    on = read_day(ctx, day, prefer="past")
    rows = await open_loans(ctx, who, direction)
    if item:
        rows = [row for row in rows if row["item"] and item.casefold() in row["item"].casefold()]
    if not rows:
        raise NotFound(f"{who['name']} has no such open loan", hint="loan_list lists open loans")
    if len({row["direction"] for row in rows}) > 1:
        raise InvalidArguments(
            f"there are loans to and from {who['name']}", hint='pass direction "lent" or "borrowed"'
        )
    if amount:
        return await _repay(ctx, who, rows, read_amount(ctx, amount), on)
    for row in rows:
        await _settle(ctx, row, row["amount"] or Decimal(0), on)
    said = ", ".join(_what(row) for row in rows)
    return {"settled": len(rows), "text": f"Settled with {who['name']}: {said}."}


async def open_loans(
    ctx: CallContext,
    who: Row | None,
    direction: str | None = None,
    *,
    include_settled: bool = False,
) -> Sequence[Row]:
    return await ctx.connection.fetch(
        """
        SELECT l.*, p.name FROM loans AS l JOIN people AS p ON p.id = l.person_id
        WHERE ($1::uuid IS NULL OR l.person_id = $1) AND ($2::text IS NULL OR l.direction = $2)
          AND (l.settled_on IS NULL OR $3)
        ORDER BY l.lent_on, l.id LIMIT 200
        """,
        who and who["id"],
        direction,
        include_settled,
    )


async def _repay(
    ctx: CallContext, who: Row, rows: Sequence[Row], money: Money, on: date
) -> dict[str, Any]:
    """Use the amount for the oldest loans first. Raises InvalidArguments for more than is open."""
    owed = [row for row in rows if row["currency"] == money.currency]
    left, settled = money.amount, 0
    if left > sum(row["amount"] - row["repaid"] for row in owed):
        raise InvalidArguments(
            f"{who['name']} owes less than {money}", hint="loan_list shows what is open"
        )
    for row in owed:
        part = min(left, row["amount"] - row["repaid"])
        if part:
            repaid = row["repaid"] + part
            await _settle(ctx, row, repaid, on if repaid == row["amount"] else None)
            settled += repaid == row["amount"]
        left -= part
    rest = sum((row["amount"] - row["repaid"] for row in owed), Decimal(0)) - money.amount
    still = f" Still open: {Money(rest, money.currency)}." if rest else ""
    return {"settled": settled, "text": f"Settled with {who['name']}: {money}.{still}"}


async def _settle(ctx: CallContext, row: Row, repaid: Decimal, on: date | None) -> None:
    await ctx.connection.execute(
        "UPDATE loans SET repaid = $2, settled_on = $3 WHERE id = $1", row["id"], repaid, on
    )


def _what(row: Row) -> str:
    if row["item"]:
        return str(row["item"])
    return str(Money(row["amount"] - row["repaid"], row["currency"]))


def _line(ctx: CallContext, row: Row) -> str:
    since = day_words(row["lent_on"], today_of(ctx))
    end = " – settled" if row["settled_on"] else ""
    if row["direction"] == "lent":
        verb = "has your" if row["item"] else "owes you"
        return f"{row['name']} {verb} {_what(row)} (since {since}){_due_words(ctx, row['due_on'])}{end}"
    verb = "You have" if row["item"] else "You owe"
    whose = f"{row['name']}’s {_what(row)}" if row["item"] else f"{row['name']} {_what(row)}"
    return f"{verb} {whose} (since {since}){_due_words(ctx, row['due_on'])}{end}"


def _due_words(ctx: CallContext, day: date | None) -> str:
    return f", due {day_words(day, today_of(ctx))}" if day else ""


def _totals(rows: Sequence[Row]) -> dict[str, Money]:
    """Return what is open by person and currency; what the owner owes is negative."""
    sums: dict[tuple[str, str], Decimal] = {}
    for row in rows:
        if row["amount"] is not None and row["settled_on"] is None:
            sign = 1 if row["direction"] == "lent" else -1
            key = (row["name"], row["currency"])
            sums[key] = sums.get(key, Decimal(0)) + sign * (row["amount"] - row["repaid"])
    return {f"{name} {code}": Money(total, code) for (name, code), total in sums.items()}


def _shown(ctx: CallContext, row: Row) -> dict[str, Any]:
    money = row["amount"] is not None
    optional = {
        "item": row["item"],
        "amount": format_amount(row["amount"], row["currency"]) if money else None,
        "open": format_amount(row["amount"] - row["repaid"], row["currency"]) if money else None,
        "currency": row["currency"],
        "due": row["due_on"] and row["due_on"].isoformat(),
        "settled": row["settled_on"] and row["settled_on"].isoformat(),
    }
    return {
        "id": str(row["id"]),
        "person": row["name"],
        "direction": row["direction"],
        "day": row["lent_on"].isoformat(),
        **{key: value for key, value in optional.items() if value is not None},
        **shown_source(ctx, row),
    }


TOOLS = (loan_add, loan_list, loan_settle)
