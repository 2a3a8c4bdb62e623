"""The owner's bulk tool: many measurements from a file, in one transaction per call."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID, uuid5

from pydantic import BaseModel, Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import OWNER_ONLY, CallContext, Trust, begin_import, tool

from .measurements import MeasuredValue, checked

NAMESPACE = UUID("0b6fd2c4-50d5-4bb7-8f2c-3c7a8a3f2e51")
MAX_ROWS = 1000


class ImportedMeasurement(BaseModel):
    key: Annotated[str, Field(min_length=1, max_length=100)]  # the same in each import of the row
    type: Annotated[str, Field(min_length=1, max_length=64)]
    value: Decimal
    second: Decimal | None = None
    unit: Annotated[str, Field(max_length=16)] | None = None
    at: datetime
    started_at: datetime | None = None
    notes: Annotated[str, Field(max_length=2000)] | None = None


@tool(callers=OWNER_ONLY)
async def health_import(
    ctx: CallContext,
    import_id: UUID,
    source: Annotated[str, Field(max_length=200)],
    measurements: Annotated[list[ImportedMeasurement], Field(max_length=MAX_ROWS)],
) -> dict[str, Any]:
    """Store the measurements of a file, each key once. `undo` with import_id as request_id removes them.

    Values that make no sense are counted as refused.
    """
    await begin_import(ctx, import_id, source=source, trust=Trust.OWNER)
    rows, refused = [], 0
    for one in measurements:
        try:
            reading = await checked(ctx, one.type, one.value, one.unit, one.second)
        except InvalidArguments:
            refused += 1
        else:
            rows.append(_row(one, reading))
    added = await _insert(ctx, rows)
    return {"added": added, "known": len(rows) - added, "refused": refused}


def _row(one: ImportedMeasurement, reading: MeasuredValue) -> tuple[Any, ...]:
    return (
        uuid5(NAMESPACE, one.key),
        reading.type,
        reading.value,
        reading.second,
        reading.unit,
        reading.standard_value,
        reading.standard_second,
        reading.standard_unit,
        one.at,
        one.started_at,
        one.notes,
    )


async def _insert(ctx: CallContext, rows: list[tuple[Any, ...]]) -> int:
    """Insert the rows and return how many were new. The id is made of the key."""
    if not rows:
        return 0
    found = await ctx.connection.fetch(
        """
        INSERT INTO measurements (id, type, value, second, unit, standard_value, standard_second,
                                  standard_unit, measured_at, started_at, notes)
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::numeric[], $4::numeric[], $5::text[], $6::numeric[],
                             $7::numeric[], $8::text[], $9::timestamptz[], $10::timestamptz[], $11::text[])
        ON CONFLICT (id) DO NOTHING RETURNING id
        """,
        *(list(column) for column in zip(*rows, strict=True)),
    )
    return len(found)


TOOLS = (health_import,)
