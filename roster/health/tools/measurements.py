"""Tools for body measurements: one typed row each."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, Effect, tool, uuid7

Type = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9_ -]*$")]
COLUMNS = "id, type, value, unit, notes, measured_at"


@tool(callers=SESSIONS)
async def measurement_log(
    ctx: CallContext,
    type: Type,  # noqa: A002  (named after the column)
    value: Decimal,
    unit: Annotated[str, Field(max_length=16)] | None = None,
    measured_at: datetime | None = None,
    notes: Annotated[str, Field(max_length=2000)] | None = None,
) -> dict[str, Any]:
    """Store one measurement, e.g. type "weight", value 80.4, unit "kg". measured_at defaults to now."""
    if not value.is_finite():
        raise InvalidArguments("value is not a number")
    when = measured_at or ctx.now
    if when.tzinfo is None:
        when = when.replace(tzinfo=ctx.zone)
    row = await ctx.connection.fetchrow(
        f"""
        INSERT INTO measurements (id, type, value, unit, measured_at, notes)
        VALUES ($1, $2, $3, $4, $5, $6) RETURNING {COLUMNS}
        """,
        uuid7(),
        type,
        value,
        unit,
        when,
        notes,
    )
    return _shown(row, ctx.zone)


@tool(callers=SESSIONS, effect=Effect.READ)
async def measurement_latest(ctx: CallContext, type: Type) -> dict[str, Any] | None:  # noqa: A002
    """Return the newest measurement of a type, or null."""
    row = await ctx.connection.fetchrow(
        f"SELECT {COLUMNS} FROM measurements WHERE type = $1 ORDER BY measured_at DESC, id DESC LIMIT 1",
        type,
    )
    return _shown(row, ctx.zone) if row else None


@tool(callers=SESSIONS, effect=Effect.READ)
async def measurement_history(
    ctx: CallContext,
    type: Type,  # noqa: A002
    start: datetime | None = None,
    end: datetime | None = None,
    limit: Annotated[int, Field(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """List measurements of a type, newest first, optionally between two times."""
    rows = await ctx.connection.fetch(
        f"""
        SELECT {COLUMNS} FROM measurements
        WHERE type = $1 AND ($2::timestamptz IS NULL OR measured_at >= $2)
          AND ($3::timestamptz IS NULL OR measured_at < $3)
        ORDER BY measured_at DESC, id DESC LIMIT $4
        """,
        type,
        start,
        end,
        limit,
    )
    return {"measurements": [_shown(row, ctx.zone) for row in rows]}


def _shown(row: Any, zone: ZoneInfo) -> dict[str, Any]:
    """Return a row as JSON. The value stays decimal text, so that 80.40 does not become 80.4."""
    return {
        "id": str(row["id"]),
        "type": row["type"],
        "value": str(row["value"]),
        "unit": row["unit"],
        "notes": row["notes"],
        "measured_at": row["measured_at"].isoformat(),
        "when": f"{row['measured_at'].astimezone(zone):%-d %B %Y, %H:%M}",
    }


TOOLS = (measurement_log, measurement_latest, measurement_history)
