"""Tools for accounts, their balances, and transfers between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.errors import InvalidArguments, StateConflict
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    Money,
    MoneyText,
    format_amount,
    read_currency,
    read_day,
    read_money,
    shown_source,
    tool,
    uuid7,
)

from .rows import day_words, find_account, shown_transaction, today_of
from .settings import home_currency, read_amount
from .transactions import NewTransaction, insert_transaction

Name = Annotated[str, Field(min_length=1, max_length=80)]


@tool(callers=SESSIONS)
async def account_save(
    ctx: CallContext,
    name: Name,
    kind: Literal["checking", "savings", "cash", "credit", "other"] | None = None,
    currency: str | None = None,
    opening_balance: MoneyText | None = None,
    closed: bool | None = None,
    new_name: Name | None = None,
) -> dict[str, Any]:
    """Create an account, or change the account of this name. opening_balance may be negative."""
    known = await ctx.connection.fetchrow(
        "SELECT * FROM accounts WHERE lower(name) = lower($1) FOR UPDATE", name
    )
    code = read_currency(currency) if currency else None
    chosen = code or (known["currency"] if known else home_currency(ctx))
    if known and chosen != known["currency"]:
        await _refuse_booked(ctx, known)
    opening = read_money(opening_balance, chosen) if opening_balance else None
    if opening and opening.currency != chosen:
        raise InvalidArguments(f"the account is in {chosen}, not {opening.currency}")
    values = (
        (new_name or name).strip() if new_name or not known else known["name"],
        kind or (known["kind"] if known else "checking"),
        chosen,
        opening.amount if opening else known["opening_balance"] if known else 0,
        closed if closed is not None else bool(known and known["is_closed"]),
    )
    row = await _store(ctx, known, values)
    text = f"{'Changed' if known else 'Created'}: account {row['name']} ({row['currency']})."
    return {"id": str(row["id"]), "name": row["name"], "currency": row["currency"], "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def account_list(ctx: CallContext, include_closed: bool = False) -> dict[str, Any]:
    """List accounts with their balances."""
    rows = await ctx.connection.fetch(
        """
        SELECT a.*, a.opening_balance + coalesce(
                   (SELECT sum(t.amount) FROM transactions AS t WHERE t.account_id = a.id), 0) AS balance
        FROM accounts AS a WHERE NOT a.is_closed OR $1 ORDER BY a.name
        """,
        include_closed,
    )
    lines = [f"{row['name']}: {Money(row['balance'], row['currency'])}" for row in rows]
    return {
        "accounts": [_shown(ctx, row) for row in rows],
        "text": "\n".join(lines) or "No accounts yet.",
    }


@tool(callers=SESSIONS)
async def transfer_add(
    ctx: CallContext,
    amount: MoneyText,
    from_account: Name,
    to_account: Name,
    day: Day = "today",
    received: MoneyText | None = None,
) -> dict[str, Any]:
    """Move money between two of the person's accounts. received: what arrived, if not the same."""
    source, target = await find_account(ctx, from_account), await find_account(ctx, to_account)
    if source["id"] == target["id"]:
        raise InvalidArguments("both accounts are the same")
    sent = read_amount(ctx, amount)
    if received is None and source["currency"] != target["currency"]:
        raise InvalidArguments(
            f"{target['name']} is in {target['currency']}",
            hint=f"pass received: the amount that arrived, in {target['currency']}",
        )
    arrived = read_amount(ctx, received) if received else sent
    for account, money in ((source, sent), (target, arrived)):
        if account["currency"] != money.currency:
            raise InvalidArguments(f"{account['name']} is in {account['currency']}")
    on, transfer_id = read_day(ctx, day, prefer="past"), uuid7()
    sides = []
    for account, other, money, out in (
        (source, target, sent, True),
        (target, source, arrived, False),
    ):
        description = f"Transfer {'to' if out else 'from'} {other['name']}"
        new = NewTransaction(
            on,
            "transfer",
            money,
            description,
            "transfer",
            account_id=account["id"],
            transfer_id=transfer_id,
            outgoing=out,
        )
        sides.append(await insert_transaction(ctx, new))
    when = day_words(on, today_of(ctx))
    text = f"Transferred: {sent} from {source['name']} to {target['name']}, {when}."
    return {"transactions": [shown_transaction(ctx, side) for side in sides], "text": text}


async def _store(
    ctx: CallContext, known: Mapping[str, Any] | None, values: tuple[Any, ...]
) -> Mapping[str, Any]:
    if known:
        sql = """
            UPDATE accounts SET name = $2, kind = $3, currency = $4, opening_balance = $5, is_closed = $6
            WHERE id = $1 RETURNING *
            """
    else:
        sql = """
            INSERT INTO accounts (id, name, kind, currency, opening_balance, is_closed)
            VALUES ($1, $2, $3, $4, $5, $6) RETURNING *
            """
    row = await ctx.connection.fetchrow(sql, known["id"] if known else uuid7(), *values)
    assert row is not None
    return row


async def _refuse_booked(ctx: CallContext, account: Mapping[str, Any]) -> None:
    if await ctx.connection.fetchval(
        "SELECT true FROM transactions WHERE account_id = $1 LIMIT 1", account["id"]
    ):
        raise StateConflict(
            f"{account['name']} has transactions in {account['currency']}",
            hint="create another account for the other currency",
        )


def _shown(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "kind": row["kind"],
        "currency": row["currency"],
        "balance": format_amount(row["balance"], row["currency"]),
        **({"closed": True} if row["is_closed"] else {}),
        **shown_source(ctx, row),
    }


TOOLS = (account_save, account_list, transfer_add)
