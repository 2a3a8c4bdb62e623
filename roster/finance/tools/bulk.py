"""The owner's bulk tool: many transactions from a file, in one transaction per call."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from butlers.sdk import (
    OWNER_ONLY,
    CallContext,
    Trust,
    begin_import,
    read_currency,
    read_money,
    tool,
    uuid7,
)

from .categories import category_of, load_rules, read_category
from .settings import home_currency

Short = Annotated[str, Field(max_length=200)]
MAX_ROWS = 1000


class ImportedShare(BaseModel):
    owed_by: Annotated[str, Field(min_length=1, max_length=80)]
    amount: str


class ImportedTransaction(BaseModel):
    key: Annotated[str, Field(min_length=1, max_length=100)]  # the same in each import of the row
    day: date
    amount: str  # negative: money that left
    currency: str | None = None
    description: Short
    merchant: Short | None = None
    category: Short | None = None
    account: Short | None = None  # created when missing
    reference: Short | None = None
    notes: Annotated[str, Field(max_length=2000)] | None = None
    kind: Literal["expense", "income", "refund"] | None = None
    shares: list[ImportedShare] = []


@tool(callers=OWNER_ONLY)
async def finance_import(
    ctx: CallContext,
    import_id: UUID,
    source: Short,
    transactions: Annotated[list[ImportedTransaction], Field(max_length=MAX_ROWS)],
    trusted: bool = False,
) -> dict[str, Any]:
    """Store the transactions of a file, each key once. `undo` with import_id as request_id removes them.

    The texts of a bank statement are written by other parties, so the rows are not trusted.
    """
    trust = Trust.OWNER if trusted else Trust.OUTSIDE
    await begin_import(ctx, import_id, source=source, trust=trust)
    accounts = await _accounts(ctx, transactions)
    rules = await load_rules(ctx)
    rows = [_row(ctx, one, accounts, rules) for one in transactions]
    stored = await _insert(ctx, rows)
    await _insert_shares(ctx, transactions, stored)
    return {
        "added": len(stored),
        "known": len(transactions) - len(stored),
        "possible_duplicates": await _possible_duplicates(ctx, list(stored.values())),
    }


async def _accounts(ctx: CallContext, given: list[ImportedTransaction]) -> dict[str, UUID]:
    """Return the account ids by lower-case name; create the missing ones."""
    wanted = {one.account.strip(): _currency(ctx, one) for one in given if one.account}
    for name, currency in wanted.items():
        await ctx.connection.execute(
            """
            INSERT INTO accounts (id, name, kind, currency) VALUES ($1, $2, 'checking', $3)
            ON CONFLICT (lower(name)) DO NOTHING
            """,
            uuid7(),
            name,
            currency,
        )
    rows = await ctx.connection.fetch("SELECT id, lower(name) AS name FROM accounts")
    return {row["name"]: row["id"] for row in rows}


def _row(
    ctx: CallContext,
    one: ImportedTransaction,
    accounts: dict[str, UUID],
    rules: dict[str, str],
) -> tuple[Any, ...]:
    money = read_money(one.amount, _currency(ctx, one))
    kind = one.kind or ("expense" if money.amount < 0 else "income")
    amount = abs(money.amount) if kind != "expense" else -abs(money.amount)
    category = (
        read_category(one.category)
        if one.category
        else category_of(rules, one.description, one.merchant)
    )
    return (
        uuid7(),
        one.day,
        kind,
        amount,
        money.currency,
        one.description,
        one.merchant,
        "income" if category == "other" and kind == "income" else category,
        accounts.get(one.account.strip().lower()) if one.account else None,
        one.reference,
        one.notes,
        one.key,
    )


async def _insert(ctx: CallContext, rows: list[tuple[Any, ...]]) -> dict[str, UUID]:
    """Insert the rows and return the ids of those that were new, by key."""
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) or [()] * 12
    found = await ctx.connection.fetch(
        """
        INSERT INTO transactions (id, posted_on, kind, amount, currency, description, merchant, category,
                                  account_id, reference, notes, import_key)
        SELECT * FROM unnest($1::uuid[], $2::date[], $3::text[], $4::numeric[], $5::text[], $6::text[],
                             $7::text[], $8::text[], $9::uuid[], $10::text[], $11::text[], $12::text[])
        ON CONFLICT (import_key) WHERE import_key IS NOT NULL DO NOTHING
        RETURNING import_key, id
        """,
        *(list(column) for column in columns),
    )
    return {row["import_key"]: row["id"] for row in found}


async def _insert_shares(
    ctx: CallContext, given: list[ImportedTransaction], stored: dict[str, UUID]
) -> None:
    """Store who owes which part, and the rest as the owner's own part."""
    rows: list[tuple[Any, ...]] = []
    for one in given:
        if not one.shares or one.key not in stored:
            continue
        whole = abs(read_money(one.amount, _currency(ctx, one)).amount)
        owed = [(s.owed_by, Decimal(s.amount)) for s in one.shares]
        rest = whole - sum(amount for _, amount in owed)
        parts = [*owed, *([(None, rest)] if rest > 0 else [])]
        category = read_category(one.category or "other")
        rows += [(uuid7(), stored[one.key], amount, category, name) for name, amount in parts]
    await ctx.connection.executemany(
        "INSERT INTO transaction_parts (id, transaction_id, amount, category, owed_by)"
        " VALUES ($1, $2, $3, $4, $5)",
        rows,
    )


async def _possible_duplicates(ctx: CallContext, ids: list[UUID]) -> int:
    """Count new rows that a person may have entered by hand before."""
    found: int = await ctx.connection.fetchval(
        """
        SELECT count(*) FROM transactions AS new WHERE new.id = ANY($1) AND EXISTS (
            SELECT FROM transactions AS old
            WHERE old.currency = new.currency AND old.amount = new.amount AND old.kind = new.kind
              AND old.posted_on BETWEEN new.posted_on - 3 AND new.posted_on + 3
              AND old.import_key IS NULL)
        """,
        ids,
    )
    return found


def _currency(ctx: CallContext, one: ImportedTransaction) -> str:
    return read_currency(one.currency) if one.currency else home_currency(ctx)


TOOLS = (finance_import,)
