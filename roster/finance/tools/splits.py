"""Parts of a transaction: other categories, or shares that another person owes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Money,
    MoneyText,
    format_amount,
    read_positive_money,
    tool,
    uuid7,
)

from .categories import Category, read_category
from .rows import find_transaction, line, shown_transaction

Person = Annotated[str, Field(min_length=1, max_length=80)]


class Part(BaseModel):
    amount: MoneyText
    category: Category | None = None
    owed_by: Person | None = None


@dataclass(frozen=True, slots=True)
class _NewPart:
    amount: Decimal
    category: str
    owed_by: str | None


@tool(callers=SESSIONS)
async def transaction_split(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (the name of its argument)
    parts: Annotated[list[Part], Field(max_length=50)],
) -> dict[str, Any]:
    """Split an expense into categories, or into shares that people owe. The rest stays as it is.

    Replaces an earlier split; without parts, removes it.
    """
    row = await find_transaction(ctx, id)
    if row["kind"] != "expense":
        raise InvalidArguments("only an expense can be split")
    new = _complete(row, [_read(row, part) for part in parts])
    await ctx.connection.execute("DELETE FROM transaction_parts WHERE transaction_id = $1", id)
    await insert_parts(ctx, id, new)
    shown = [_shown(part, row["currency"]) for part in new]
    said = "; ".join(_words(part, row["currency"]) for part in new) or "not split"
    return {**shown_transaction(ctx, row), "parts": shown, "text": f"{line(row)}: {said}."}


async def insert_parts(ctx: CallContext, transaction_id: UUID, parts: Sequence[_NewPart]) -> None:
    await ctx.connection.executemany(
        """
        INSERT INTO transaction_parts (id, transaction_id, amount, category, owed_by)
        VALUES ($1, $2, $3, $4, $5)
        """,
        [(uuid7(), transaction_id, part.amount, part.category, part.owed_by) for part in parts],
    )


def _read(row: Mapping[str, Any], part: Part) -> _NewPart:
    money = read_positive_money(part.amount, row["currency"])
    if money.currency != row["currency"]:
        raise InvalidArguments(f"the expense is in {row['currency']}, not {money.currency}")
    category = read_category(part.category) if part.category else row["category"]
    return _NewPart(money.amount, category, part.owed_by and " ".join(part.owed_by.split()))


def _complete(row: Mapping[str, Any], parts: list[_NewPart]) -> list[_NewPart]:
    """Add the rest as the owner's own part. Raises InvalidArguments for more than the whole."""
    if not parts:
        return []
    rest = -row["amount"] - sum(part.amount for part in parts)
    if rest < 0:
        whole = Money(-row["amount"], row["currency"])
        raise InvalidArguments(
            f"the parts exceed the whole by {Money(-rest, row['currency'])}",
            hint=f"the expense was {whole}",
        )
    return [*parts, _NewPart(rest, row["category"], None)] if rest else parts


def _shown(part: _NewPart, currency: str) -> dict[str, Any]:
    owed = {"owed_by": part.owed_by} if part.owed_by else {}
    return {
        "amount": format_amount(part.amount, currency),
        "category": part.category,
        **owed,
    }


def _words(part: _NewPart, currency: str) -> str:
    money = Money(part.amount, currency)
    return f"{part.owed_by} owes {money}" if part.owed_by else f"{part.category} {money}"


TOOLS = (transaction_split,)
