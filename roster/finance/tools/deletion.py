"""Deleting one finance record of any kind. The core tool ``undo`` brings it back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from butlers.domain.errors import NotFound, StateConflict
from butlers.sdk import SESSIONS, CallContext, tool

TABLES = ("transactions", "bills", "budgets", "accounts", "exchange_rates", "category_rules")


@tool(callers=SESSIONS)
async def finance_delete(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Delete a transaction (with both sides of a transfer), bill, budget, account, rate or rule."""
    for table in TABLES:
        if await _delete(ctx, table, id):
            return {"deleted": str(id), "table": table, "text": "Deleted. Say “undo” to restore."}
    raise NotFound(f"there is no record {id}", hint="use an id that a list returned")


async def _delete(ctx: CallContext, table: str, record_id: UUID) -> bool:
    condition = "id = $1"
    if table == "transactions":
        condition += " OR transfer_id = (SELECT transfer_id FROM transactions WHERE id = $1)"
    elif table == "accounts":
        await _refuse_booked(ctx, record_id)
    rows = await ctx.connection.fetch(
        f"DELETE FROM {table} WHERE {condition} RETURNING id", record_id
    )
    return bool(rows)


async def _refuse_booked(ctx: CallContext, account_id: UUID) -> None:
    if await ctx.connection.fetchval(
        "SELECT true FROM transactions WHERE account_id = $1 LIMIT 1", account_id
    ):
        raise StateConflict(
            "the account has transactions", hint="close it: account_save with closed = true"
        )


TOOLS = (finance_delete,)
