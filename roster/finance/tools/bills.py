"""Tools for recurring payments: bills to pay, subscriptions that renew by themselves, regular income."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.errors import InvalidArguments
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

from .categories import Category, categorize, read_category
from .recurrence import Repeats, next_after, next_on_or_after
from .rows import day_words, find_account, find_bill, shown_transaction, today_of
from .settings import read_amount
from .transactions import NewTransaction, insert_transaction

Payee = Annotated[str, Field(min_length=1, max_length=80)]
BillKind = Literal["bill", "subscription", "income"]
PER_YEAR = {
    "once": 0,
    "weekly": 52,
    "biweekly": 26,
    "monthly": 12,
    "quarterly": 4,
    "half-yearly": 2,
    "yearly": 1,
}


@tool(callers=SESSIONS)
async def bill_save(
    ctx: CallContext,
    payee: Payee,
    amount: MoneyText | None = None,
    due: Day | None = None,
    repeats: Repeats | None = None,
    kind: BillKind | None = None,
    category: Category | None = None,
    account: Payee | None = None,
    notes: Annotated[str, Field(max_length=2000)] | None = None,
) -> dict[str, Any]:
    """Create a bill, subscription or regular income, or change the active one of this payee.

    due: the next (or first) day. A new one repeats monthly unless said otherwise.
    """
    known = await ctx.connection.fetchrow(
        "SELECT * FROM bills WHERE status = 'active' AND lower(payee) = lower($1) FOR UPDATE",
        payee.strip(),
    )
    if known is None and amount is None:
        raise InvalidArguments(f"the amount of {payee} is missing", hint="pass amount")
    owner = await find_account(ctx, account) if account else None
    money = read_amount(ctx, amount) if amount else None
    day = _due(ctx, due) if due else None
    given: dict[str, Any] = {
        "kind": kind,
        "amount": money and money.amount,
        "currency": money and money.currency,
        "repeats": repeats,
        "first_due": day,
        "next_due": day,
        "category": read_category(category) if category else None,
        "account_id": owner and owner["id"],
        "notes": notes,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    row = await (_change(ctx, known, changes) if known else _create(ctx, payee, changes))
    return {**_shown(ctx, row), "text": _saved_text(ctx, row, is_new=known is None)}


@tool(callers=SESSIONS, effect=Effect.READ)
async def bill_list(
    ctx: CallContext,
    within_days: Annotated[int, Field(ge=0, le=3660)] | None = None,
    kind: BillKind | None = None,
    include_stopped: bool = False,
) -> dict[str, Any]:
    """List bills, subscriptions and regular income by due date, overdue first."""
    rows = await ctx.connection.fetch(
        """
        SELECT * FROM bills WHERE (status = 'active' OR $1) AND ($2::text IS NULL OR kind = $2)
        ORDER BY next_due, payee LIMIT 500
        """,
        include_stopped,
        kind,
    )
    today = today_of(ctx)
    limit = date.max if within_days is None else today + timedelta(days=within_days)
    due = sorted((_due_on(row, today), row["payee"], row) for row in rows)
    shown = [(day, row) for day, _, row in due if day <= limit]
    return {
        "bills": [_shown(ctx, row) for _, row in shown],
        "per_month": _per_month([row for _, row in shown]),
        "text": _listed(shown, today),
    }


@tool(callers=SESSIONS)
async def bill_pay(
    ctx: CallContext,
    payee: Payee,
    amount: MoneyText | None = None,
    day: Day = "today",
    account: Payee | None = None,
) -> dict[str, Any]:
    """Record that a bill was paid (or a regular income arrived) and move it to its next due date."""
    bill = await find_bill(ctx, payee)
    money = read_amount(ctx, amount) if amount else Money(bill["amount"], bill["currency"])
    owner = await find_account(ctx, account) if account else None
    new = NewTransaction(
        read_day(ctx, day, prefer="past"),
        "income" if bill["kind"] == "income" else "expense",
        money,
        bill["payee"],
        bill["category"],
        account_id=owner["id"] if owner else bill["account_id"],
        bill_id=bill["id"],
        bill_due=bill["next_due"],
    )
    booked = await insert_transaction(ctx, new)
    following = next_after(bill["first_due"], bill["repeats"], bill["next_due"])
    await ctx.connection.execute(
        "UPDATE bills SET next_due = coalesce($2, next_due), status = $3 WHERE id = $1",
        bill["id"],
        following,
        "active" if following else "done",
    )
    verb = "Received" if bill["kind"] == "income" else "Paid"
    after = f" Next due {day_words(following, today_of(ctx))}." if following else ""
    text = f"{verb}: {bill['payee']} {money} (due {bill['next_due']:%-d %B}).{after}"
    return {**shown_transaction(ctx, booked), "text": text}


@tool(callers=SESSIONS)
async def bill_stop(ctx: CallContext, payee: Payee, day: Day = "today") -> dict[str, Any]:
    """End a bill, subscription or regular income. Past payments stay."""
    bill = await find_bill(ctx, payee)
    on = read_day(ctx, day, prefer="future")
    row = await ctx.connection.fetchrow(
        "UPDATE bills SET status = 'stopped', stopped_on = $2 WHERE id = $1 RETURNING *",
        bill["id"],
        on,
    )
    assert row is not None
    saved = Money(row["amount"], row["currency"])
    text = f"Stopped: {row['payee']} ({saved} {row['repeats']})."
    return {**_shown(ctx, row), "text": text}


def _due(ctx: CallContext, text: str) -> date:
    """Return a due date; a bare "1st" is the next first of a month."""
    words = text.casefold().removeprefix("on ").removeprefix("the ").removeprefix("am ")
    number = words.rstrip("stndrh.")
    if not number.isdecimal() or not 1 <= int(number) <= 31:
        return read_day(ctx, text, prefer="future")
    today, wanted = today_of(ctx), int(number)
    first = today.replace(day=1)
    for _ in range(12):
        following = next_after(first, "monthly", first)
        assert following is not None
        day = first + timedelta(days=wanted - 1)
        if today <= day < following:
            return day
        first = following
    raise InvalidArguments(f"{text!r} is not a day of a month", hint='write "the 1st"')


async def _create(ctx: CallContext, payee: str, given: dict[str, Any]) -> Mapping[str, Any]:
    category = given.get("category") or await categorize(ctx, payee)
    day = given.get("next_due") or today_of(ctx)
    values = {
        "kind": "bill",
        "repeats": "monthly",
        "first_due": day,
        "next_due": day,
        **given,
        "id": uuid7(),
        "payee": " ".join(payee.split()),
        "category": category,
    }
    numbers = ", ".join(f"${number}" for number in range(1, len(values) + 1))
    row = await ctx.connection.fetchrow(
        f"INSERT INTO bills ({', '.join(values)}) VALUES ({numbers}) RETURNING *", *values.values()
    )
    assert row is not None
    return row


async def _change(
    ctx: CallContext, known: Mapping[str, Any], changes: dict[str, Any]
) -> Mapping[str, Any]:
    if not changes:
        return known
    columns = ", ".join(f"{name} = ${number}" for number, name in enumerate(changes, 2))
    row = await ctx.connection.fetchrow(
        f"UPDATE bills SET {columns} WHERE id = $1 RETURNING *", known["id"], *changes.values()
    )
    assert row is not None
    return row


def _due_on(row: Mapping[str, Any], today: date) -> date:
    """Return the next due date. A subscription renews by itself, so its date is never in the past."""
    day: date = row["next_due"]
    if row["kind"] == "bill":
        return day
    return next_on_or_after(day, row["repeats"], today)


def _shown(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    today = today_of(ctx)
    due = _due_on(row, today)
    return {
        "id": str(row["id"]),
        "kind": row["kind"],
        "payee": row["payee"],
        "amount": format_amount(row["amount"], row["currency"]),
        "currency": row["currency"],
        "category": row["category"],
        "repeats": row["repeats"],
        "due": due.isoformat(),
        "status": "overdue" if row["status"] == "active" and due < today else row["status"],
        **({"notes": row["notes"]} if row["notes"] else {}),
        **shown_source(ctx, row),
    }


def _saved_text(ctx: CallContext, row: Mapping[str, Any], *, is_new: bool) -> str:
    money, today = Money(row["amount"], row["currency"]), today_of(ctx)
    due = day_words(_due_on(row, today), today)
    verb = "Noted" if is_new else "Changed"
    word = {"bill": "due", "subscription": "renews", "income": "expected"}[row["kind"]]
    often = "" if row["repeats"] == "once" else f", {row['repeats']}"
    return f"{verb}: {row['payee']} {money}{often}, {word} {due}."


def _listed(due: list[tuple[date, Mapping[str, Any]]], today: date) -> str:
    lines = []
    for day, row in due:
        late = f" – overdue by {(today - day).days} days" if day < today else ""
        money = Money(row["amount"], row["currency"])
        lines.append(f"{day:%-d %b}  {row['payee']}  {money}{late}")
    return "\n".join(lines) or "Nothing is due."


def _per_month(rows: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return what the active ones cost per month, by currency; income counts against it."""
    totals: dict[str, Any] = {}
    for row in rows:
        if row["status"] == "active":
            sign = -1 if row["kind"] == "income" else 1
            year = sign * row["amount"] * PER_YEAR[row["repeats"]]
            totals[row["currency"]] = totals.get(row["currency"], 0) + year
    return {code: format_amount(total / 12, code) for code, total in totals.items()}


TOOLS = (bill_save, bill_list, bill_pay, bill_stop)
