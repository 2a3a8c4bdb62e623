"""Tools for transactions: add, change, search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import InvalidArguments, StateConflict
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    Money,
    MoneyText,
    PeriodText,
    read_day,
    read_period,
    tool,
    uuid7,
)

from .categories import Category, categorize, known_category, read_category
from .rows import (
    TRANSACTION_COLUMNS,
    day_words,
    find_account,
    find_transaction,
    line,
    shown_transaction,
    today_of,
)
from .settings import read_amount

Words = Annotated[str, Field(min_length=1, max_length=200)]
Notes = Annotated[str, Field(max_length=2000)]
Kind = Literal["expense", "income", "refund"]
DUPLICATE_DAYS = 1


@tool(callers=SESSIONS)
async def transaction_add(
    ctx: CallContext,
    amount: MoneyText,
    description: Words,
    kind: Kind = "expense",
    day: Day = "today",
    category: Category | None = None,
    merchant: Words | None = None,
    account: Words | None = None,
    reference: Words | None = None,
    refund_of: UUID | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Record money spent, received or refunded. reference: number of the receipt or invoice."""
    money, on = read_amount(ctx, amount), read_day(ctx, day, prefer="past")
    if reference and (known := await _same_reference(ctx, reference, money)):
        said = f"Already recorded: {line(known)}."
        return {**shown_transaction(ctx, known), "already_recorded": True, "text": said}
    original = await _refunded(ctx, refund_of, money) if refund_of else None
    chosen = read_category(category) if category else original and original["category"]
    owner = await find_account(ctx, account) if account else None
    _check_currency(owner, money)
    new = NewTransaction(
        posted_on=on,
        kind="refund" if refund_of else kind,
        money=money,
        description=description.strip(),
        merchant=merchant,
        category=chosen or await categorize(ctx, description, merchant),
        account_id=owner["id"] if owner else None,
        reference=reference,
        notes=notes,
        refund_of=refund_of,
    )
    twin = await _twin(ctx, new)
    row = await insert_transaction(ctx, new)
    shown = shown_transaction(ctx, row)
    if twin:
        shown["possible_duplicate_of"] = str(twin["id"])
    return {**shown, "text": _added_text(ctx, row, twin)}


@tool(callers=SESSIONS)
async def transaction_update(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (named after the column)
    amount: MoneyText | None = None,
    description: Words | None = None,
    day: Day | None = None,
    category: Category | None = None,
    merchant: Words | None = None,
    account: Words | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Correct a transaction. Only the given fields change."""
    row = await find_transaction(ctx, id)
    if row["transfer_id"] and (amount or account):
        raise StateConflict("a transfer has two sides", hint="delete it and call transfer_add")
    changes: dict[str, Any] = {
        "description": description,
        "posted_on": read_day(ctx, day, prefer="past") if day else None,
        "category": read_category(category) if category else None,
        "merchant": merchant,
        "notes": notes,
    }
    owner = await find_account(ctx, account) if account else None
    if owner:
        changes["account_id"] = owner["id"]
    if amount:
        money = read_amount(ctx, amount)
        await _refuse_parts(ctx, row, money)
        changes |= {
            "amount": money.amount if row["amount"] > 0 else -money.amount,
            "currency": money.currency,
        }
    currency = changes.get("currency", row["currency"])
    home = owner or (await find_account(ctx, row["account"]) if row["account"] else None)
    _check_currency(home, Money(Decimal(1), currency))
    changed = await _update(ctx, id, {key: v for key, v in changes.items() if v is not None})
    return {**shown_transaction(ctx, changed), "text": f"Changed: {line(changed)}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def transaction_search(
    ctx: CallContext,
    text: Annotated[str, Field(max_length=200)] | None = None,
    period: PeriodText = "all",
    category: Category | None = None,
    account: Words | None = None,
    kind: Literal["expense", "income", "refund", "transfer"] | None = None,
    min_amount: MoneyText | None = None,
    max_amount: MoneyText | None = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    page: str | None = None,
) -> dict[str, Any]:
    """Find transactions, newest first. page: `next_page` of the answer before."""
    days = read_period(ctx, period)
    owner = await find_account(ctx, account) if account else None
    where = _Conditions()
    where.add("t.posted_on BETWEEN {} AND {}", days.first_day, days.last_day)
    where.add("t.words @@ to_tsquery('simple', {})", _query(text))
    where.add("t.category = {0} OR t.category LIKE {0} || '/%'", _category(category))
    where.add("t.account_id = {}", owner and owner["id"])
    where.add("t.kind = {}", kind)
    where.add("abs(t.amount) >= {}", min_amount and read_amount(ctx, min_amount).amount)
    where.add("abs(t.amount) <= {}", max_amount and read_amount(ctx, max_amount).amount)
    if page:
        where.add("(t.posted_on, t.id) < ({}, {})", *_read_page(page))
    rows = await ctx.connection.fetch(
        f"""
        WITH found AS {"MATERIALIZED" if text else "NOT MATERIALIZED"} (
            SELECT * FROM transactions AS t WHERE {where.sql}
        )
        SELECT {TRANSACTION_COLUMNS} FROM found AS t
        ORDER BY t.posted_on DESC, t.id DESC LIMIT {limit + 1}
        """,
        *where.values,
    )
    found, more = rows[:limit], len(rows) > limit
    following = f"{found[-1]['posted_on']}_{found[-1]['id']}" if more else None
    lines = "\n".join(line(row) for row in found) or "No entries found."
    return {
        "transactions": [shown_transaction(ctx, row) for row in found],
        "next_page": following,
        "text": lines + ("\n… more" if more else ""),
    }


@dataclass(frozen=True, slots=True)
class NewTransaction:
    posted_on: date
    kind: str
    money: Money  # positive
    description: str
    category: str
    merchant: str | None = None
    account_id: UUID | None = None
    reference: str | None = None
    notes: str | None = None
    refund_of: UUID | None = None
    transfer_id: UUID | None = None
    bill_id: UUID | None = None
    bill_due: date | None = None
    outgoing: bool | None = None  # None: as the kind says

    @property
    def signed(self) -> Decimal:
        out = self.kind == "expense" if self.outgoing is None else self.outgoing
        return -self.money.amount if out else self.money.amount


async def insert_transaction(ctx: CallContext, new: NewTransaction) -> Mapping[str, Any]:
    row = await ctx.connection.fetchrow(
        f"""
        INSERT INTO transactions AS t (id, posted_on, kind, amount, currency, description, merchant,
            category, account_id, reference, notes, refund_of, transfer_id, bill_id, bill_due)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        RETURNING {TRANSACTION_COLUMNS}
        """,
        uuid7(),
        new.posted_on,
        new.kind,
        new.signed,
        new.money.currency,
        new.description,
        new.merchant,
        new.category,
        new.account_id,
        new.reference,
        new.notes,
        new.refund_of,
        new.transfer_id,
        new.bill_id,
        new.bill_due,
    )
    assert row is not None
    return row


class _Conditions:
    """Conditions of a query; a condition whose only value is None is left out."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._parts: list[str] = ["true"]

    @property
    def sql(self) -> str:
        return " AND ".join(self._parts)

    def add(self, template: str, *values: Any) -> None:
        if values == (None,):
            return
        first = len(self.values) + 1
        self.values += values
        self._parts.append(f"({template.format(*(f'${first + i}' for i in range(len(values))))})")


async def _update(ctx: CallContext, record_id: UUID, changes: dict[str, Any]) -> Mapping[str, Any]:
    if not changes:
        raise InvalidArguments("nothing to change", hint="pass at least one field")
    columns = ", ".join(f"{name} = ${number}" for number, name in enumerate(changes, 2))
    row = await ctx.connection.fetchrow(
        f"UPDATE transactions AS t SET {columns} WHERE id = $1 RETURNING {TRANSACTION_COLUMNS}",
        record_id,
        *changes.values(),
    )
    assert row is not None
    return row


async def _same_reference(
    ctx: CallContext, reference: str, money: Money
) -> Mapping[str, Any] | None:
    """Return the transaction of the same receipt, if it is stored."""
    return await ctx.connection.fetchrow(
        f"""
        SELECT {TRANSACTION_COLUMNS} FROM transactions AS t
        WHERE currency = $1 AND amount IN ($2::numeric, -$2::numeric) AND lower(reference) = lower($3) LIMIT 1
        """,
        money.currency,
        money.amount,
        reference,
    )


async def _twin(ctx: CallContext, new: NewTransaction) -> Mapping[str, Any] | None:
    """Return a stored transaction that the new one may repeat."""
    return await ctx.connection.fetchrow(
        f"""
        SELECT {TRANSACTION_COLUMNS} FROM transactions AS t
        WHERE currency = $1 AND amount = $2 AND abs(posted_on - $3) <= {DUPLICATE_DAYS}
          AND posted_on BETWEEN $3 - {DUPLICATE_DAYS} AND $3 + {DUPLICATE_DAYS}
          AND (lower(description) = lower($4) OR lower(merchant) = lower($5))
          AND (reference IS NULL OR $6::text IS NULL)
        ORDER BY posted_on DESC, id DESC LIMIT 1
        """,
        new.money.currency,
        new.signed,
        new.posted_on,
        new.description,
        new.merchant,
        new.reference,
    )


def _added_text(ctx: CallContext, row: Mapping[str, Any], twin: Mapping[str, Any] | None) -> str:
    verb = {"expense": "Spent", "income": "Received", "refund": "Refunded"}[row["kind"]]
    money = Money(abs(row["amount"]), row["currency"])
    when = day_words(row["posted_on"], today_of(ctx))
    text = f"{verb}: {money} – {row['description']} ({row['category']}), {when}."
    if twin:
        before = day_words(twin["posted_on"], today_of(ctx))
        text += f" The same was recorded {before}; say “undo” if it is a duplicate."
    return text


async def _refunded(ctx: CallContext, refund_of: UUID, money: Money) -> Mapping[str, Any]:
    """Return the expense that is refunded. Raises InvalidArguments for more than it cost."""
    original = await find_transaction(ctx, refund_of)
    if original["kind"] != "expense" or original["currency"] != money.currency:
        raise InvalidArguments(
            "only an expense in the same currency can be refunded",
            hint="leave refund_of out for other money that came back",
        )
    before = await ctx.connection.fetchval(
        "SELECT coalesce(sum(amount), 0) FROM transactions WHERE refund_of = $1", refund_of
    )
    left = -original["amount"] - before
    if money.amount > left:
        raise InvalidArguments(
            f"the refund exceeds what is left: {Money(left, money.currency)}",
            hint="correct the amount, or leave refund_of out",
        )
    return original


async def _refuse_parts(ctx: CallContext, row: Mapping[str, Any], money: Money) -> None:
    """Raise StateConflict for a new amount that would disagree with parts or refunds."""
    if (money.amount, money.currency) == (abs(row["amount"]), row["currency"]):
        return
    if await ctx.connection.fetchval(
        "SELECT true FROM transaction_parts WHERE transaction_id = $1 LIMIT 1", row["id"]
    ):
        raise StateConflict(
            "the transaction is split, so its amount is fixed",
            hint="call transaction_split with no parts first",
        )
    refunds = await ctx.connection.fetchrow(
        "SELECT coalesce(sum(amount), 0) AS total FROM transactions WHERE refund_of = $1", row["id"]
    )
    if refunds["total"] and (money.currency != row["currency"] or refunds["total"] > money.amount):
        raise StateConflict(
            "more than that was refunded already", hint="correct or delete the refund first"
        )


def _check_currency(account: Mapping[str, Any] | None, money: Money) -> None:
    if account and account["currency"] != money.currency:
        raise InvalidArguments(
            f"the account {account['name']} is in {account['currency']}, not {money.currency}",
            hint=f"give the amount in {account['currency']}, as the bank booked it",
        )


def _category(text: str | None) -> str | None:
    return None if text is None else known_category(text) or read_category(text)


def _query(text: str | None) -> str | None:
    """Return a query for words that start with the given ones."""
    words = "".join(char if char.isalnum() else " " for char in text or "").split()
    return " & ".join(f"{word}:*" for word in words) or None


def _read_page(page: str) -> tuple[date, UUID]:
    day, _, last = page.partition("_")
    try:
        return date.fromisoformat(day), UUID(last)
    except ValueError:
        raise InvalidArguments(
            f"{page!r} is not a page", hint="pass next_page of the answer before"
        ) from None


TOOLS = (transaction_add, transaction_update, transaction_search)
