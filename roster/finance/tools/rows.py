"""Rows of finance tables: finding them by id or name, and their form in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import CallContext, Money, format_amount, shown_source

TRANSACTION_COLUMNS = """
    t.id, t.posted_on, t.kind, t.amount, t.currency, t.description, t.merchant, t.category, t.account_id,
    (SELECT a.name FROM accounts AS a WHERE a.id = t.account_id) AS account, t.reference, t.notes,
    t.refund_of, t.transfer_id, t.bill_id, t.sender, t.trust
"""


async def find_account(ctx: CallContext, name: str) -> Mapping[str, Any]:
    """Return the account with this name or id. Raises NotFound with the nearest names."""
    rows = await ctx.connection.fetch("SELECT * FROM accounts ORDER BY name")
    wanted = " ".join(name.split()).casefold()
    for row in rows:
        if wanted in (row["name"].casefold(), str(row["id"])):
            return row
    names = [row["name"] for row in rows]
    raise NotFound(f"there is no account {name!r}", hint=_nearest(wanted, names, "account_save"))


async def find_bill(ctx: CallContext, name: str) -> Mapping[str, Any]:
    """Return the active bill, subscription or income of this payee or id."""
    rows = await ctx.connection.fetch("SELECT * FROM bills WHERE status = 'active' ORDER BY payee")
    wanted = " ".join(name.split()).casefold()
    for article in ("the ", "my ", "die ", "der ", "das ", "meine ", "mein "):
        wanted = wanted.removeprefix(article)
    exact = [row for row in rows if wanted in (row["payee"].casefold(), str(row["id"]))]
    found = exact or [row for row in rows if wanted in row["payee"].casefold().split()]
    if len(found) == 1:
        return found[0]
    names = [row["payee"] for row in found or rows]
    if found:
        raise InvalidArguments(f"several bills match {name!r}", hint=f"say one of: {_list(names)}")
    raise NotFound(f"there is no bill for {name!r}", hint=_nearest(wanted, names, "bill_save"))


async def find_transaction(ctx: CallContext, record_id: UUID) -> Mapping[str, Any]:
    row = await ctx.connection.fetchrow(
        f"SELECT {TRANSACTION_COLUMNS} FROM transactions AS t WHERE id = $1 FOR UPDATE OF t",
        record_id,
    )
    if row is None:
        raise NotFound(
            f"there is no transaction {record_id}",
            hint="use an id that transaction_search returned",
        )
    return row


def shown_transaction(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a transaction as JSON, without its empty fields. Amounts are positive decimal text."""
    optional = {key: row[key] for key in ("merchant", "account", "reference", "notes") if row[key]}
    links = {key: str(row[key]) for key in ("refund_of", "transfer_id", "bill_id") if row[key]}
    return {
        "id": str(row["id"]),
        "day": row["posted_on"].isoformat(),
        "kind": row["kind"],
        "direction": "in" if row["amount"] > 0 else "out",
        "amount": format_amount(abs(row["amount"]), row["currency"]),
        "currency": row["currency"],
        "description": row["description"],
        "category": row["category"],
        **optional,
        **links,
        **shown_source(ctx, row),
    }


def line(row: Mapping[str, Any]) -> str:
    """Return a transaction as one line of a chat."""
    sign = "+" if row["amount"] > 0 else ""
    money = Money(abs(row["amount"]), row["currency"])
    return f"{row['posted_on']:%-d %b}  {row['description']}  {sign}{money}"


def day_words(day: date, today: date) -> str:
    """Return "today", "yesterday", "tomorrow" or the date."""
    words = {0: "today", -1: "yesterday", 1: "tomorrow"}
    year = "" if day.year == today.year else f" {day.year}"
    return words.get((day - today).days, f"{day:%-d %B}{year}")


def today_of(ctx: CallContext) -> date:
    return ctx.now.astimezone(ctx.zone).date()


def _nearest(wanted: str, names: Sequence[str], tool: str) -> str:
    near = get_close_matches(wanted, [name.casefold() for name in names], n=3)
    if near:
        return f"did you mean {_list(near)}?"
    return f"known: {_list(names)}" if names else f"create it with {tool}"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:10])
    return f"{shown}, …" if len(names) > 10 else shown
