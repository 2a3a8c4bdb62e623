"""Tools for transactions that seem to be stored twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, Effect, PeriodText, read_period, tool, uuid7

from .rows import TRANSACTION_COLUMNS, find_transaction, line, shown_transaction


@tool(callers=SESSIONS, effect=Effect.READ)
async def duplicate_list(
    ctx: CallContext,
    period: PeriodText = "last 90 days",
    limit: Annotated[int, Field(ge=1, le=50)] = 10,
) -> dict[str, Any]:
    """List pairs of transactions that may be the same payment: amount equal, at most 3 days apart."""
    days = read_period(ctx, period)
    pairs = await ctx.connection.fetch(
        """
        SELECT a.id AS first, b.id AS second
        FROM transactions AS a JOIN transactions AS b
          ON b.currency = a.currency AND b.amount = a.amount AND b.kind = a.kind
         AND b.posted_on BETWEEN a.posted_on - 3 AND a.posted_on + 3 AND b.id > a.id
        WHERE a.posted_on BETWEEN $1 AND $2 AND a.kind <> 'transfer'
          AND (a.reference IS NULL OR b.reference IS NULL OR a.reference = b.reference)
          AND (a.import_key IS NULL OR b.import_key IS NULL)
          AND (a.words @@ plainto_tsquery('simple', b.description)
               OR b.words @@ plainto_tsquery('simple', a.description)
               OR lower(a.merchant) = lower(b.merchant)
               OR a.import_key IS NOT NULL OR b.import_key IS NOT NULL)
          AND NOT EXISTS (SELECT FROM distinct_transactions AS d
                          WHERE d.first_id = a.id AND d.second_id = b.id)
        ORDER BY a.posted_on DESC, a.id LIMIT $3
        """,
        days.first_day,
        days.last_day,
        limit,
    )
    ids = {key for pair in pairs for key in (pair["first"], pair["second"])}
    rows = await ctx.connection.fetch(
        f"SELECT {TRANSACTION_COLUMNS} FROM transactions AS t WHERE id = ANY($1)", list(ids)
    )
    known = {row["id"]: row for row in rows}
    shown = [[shown_transaction(ctx, known[key]) for key in pair.values()] for pair in pairs]
    lines = [f"{line(known[p['first']])} ↔ {line(known[p['second']])}" for p in pairs]
    return {"pairs": shown, "text": "\n".join(lines) or "No duplicates found."}


@tool(callers=SESSIONS)
async def duplicate_resolve(
    ctx: CallContext, keep: UUID, other: UUID, action: Literal["merge", "both"]
) -> dict[str, Any]:
    """Merge two transactions into the first, or remember that both are real."""
    if keep == other:
        raise InvalidArguments("both ids are the same")
    first, second = await find_transaction(ctx, keep), await find_transaction(ctx, other)
    if (first["amount"], first["currency"]) != (second["amount"], second["currency"]):
        raise InvalidArguments(
            "the amounts differ, so they are not the same payment",
            hint="correct one with transaction_update first",
        )
    if action == "both":
        low, high = sorted((keep, other))
        await ctx.connection.execute(
            "INSERT INTO distinct_transactions (id, first_id, second_id) VALUES ($1, $2, $3)"
            " ON CONFLICT DO NOTHING",
            uuid7(),
            low,
            high,
        )
        return {"text": f"Both are kept: {line(first)}."}
    row = await _merge(ctx, first, second)
    return {**shown_transaction(ctx, row), "text": f"Merged: {line(row)}."}


async def _merge(
    ctx: CallContext, keep: Mapping[str, Any], other: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Fill the empty fields of the first from the second, move what belongs to it, delete it."""
    run = ctx.connection.execute
    has_parts = await ctx.connection.fetchval(
        "SELECT true FROM transaction_parts WHERE transaction_id = $1 LIMIT 1", keep["id"]
    )
    if not has_parts:
        await run(
            "UPDATE transaction_parts SET transaction_id = $1 WHERE transaction_id = $2",
            keep["id"],
            other["id"],
        )
    await run(
        "UPDATE transactions SET refund_of = $1 WHERE refund_of = $2 AND id <> $1",
        keep["id"],
        other["id"],
    )
    await run(
        """
        UPDATE transactions AS k
        SET merchant = coalesce(k.merchant, o.merchant), account_id = coalesce(k.account_id, o.account_id),
            reference = coalesce(k.reference, o.reference), notes = coalesce(k.notes, o.notes),
            bill_id = coalesce(k.bill_id, o.bill_id), bill_due = coalesce(k.bill_due, o.bill_due),
            category = CASE WHEN k.category = 'other' THEN o.category ELSE k.category END
        FROM transactions AS o WHERE k.id = $1 AND o.id = $2
        """,
        keep["id"],
        other["id"],
    )
    key = await ctx.connection.fetchval(
        "DELETE FROM transactions WHERE id = $1 RETURNING import_key", other["id"]
    )
    # The key of the deleted row, so that a second import of its file does not bring it back.
    await run(
        "UPDATE transactions SET import_key = coalesce(import_key, $2) WHERE id = $1",
        keep["id"],
        key,
    )
    return await find_transaction(ctx, keep["id"])


TOOLS = (duplicate_list, duplicate_resolve)
