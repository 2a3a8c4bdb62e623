"""Lines of Travel for the morning brief and the evening review."""

from __future__ import annotations

from datetime import timedelta

from butlers.sdk import BriefPart, CallContext, shown_source

from .legs import leg_line
from .trips import today

MORNING, EVENING = timedelta(hours=24), timedelta(hours=36)


async def brief_lines(ctx: CallContext, part: BriefPart) -> list[str]:
    """Return the departures until tomorrow, and the to-dos before leaving that are due."""
    ahead = MORNING if part is BriefPart.MORNING else EVENING
    legs = await ctx.connection.fetch(
        """
        SELECT leg.* FROM legs AS leg JOIN trips AS trip ON trip.id = leg.trip_id
        WHERE leg.departs_at >= $1 AND leg.departs_at < $2 AND leg.cancelled_at IS NULL
          AND trip.cancelled_at IS NULL
        ORDER BY leg.departs_at LIMIT 5
        """,
        ctx.now,
        ctx.now + ahead,
    )
    tasks = await ctx.connection.fetch(
        """
        SELECT task.*, trip.name AS trip FROM tasks AS task JOIN trips AS trip ON trip.id = task.trip_id
        WHERE task.done_at IS NULL AND task.due_on <= $1 AND trip.ends_on >= $2
          AND trip.cancelled_at IS NULL
        ORDER BY task.due_on, task.id LIMIT 5
        """,
        (ctx.now + ahead).astimezone(ctx.zone).date(),
        today(ctx),
    )
    for row in (*legs, *tasks):
        shown_source(ctx, row)
    return [
        *(f"{leg_line(row)[:1].upper()}{leg_line(row)[1:]}." for row in legs),
        *(f"{row['title']}, before {row['trip']} (due {row['due_on']:%-d %B})." for row in tasks),
    ]
