"""Checks that decide whether a schedule has something to say."""

from __future__ import annotations

from datetime import timedelta

from butlers.sdk import JobContext

WEEK = timedelta(days=7)


async def has_week_to_summarize(ctx: JobContext) -> bool:
    """Return True if anything was recorded in the seven days before."""
    return bool(
        await ctx.connection.fetchval(
            """
            SELECT EXISTS (SELECT FROM measurements WHERE measured_at >= $1)
                OR EXISTS (SELECT FROM doses WHERE taken_at >= $1)
                OR EXISTS (SELECT FROM symptoms WHERE occurred_at >= $1)
                OR EXISTS (SELECT FROM meals WHERE eaten_at >= $1)
            """,
            ctx.due_at - WEEK,
        )
    )


async def has_gap_to_ask_about(ctx: JobContext) -> bool:
    """Return True if the person measures regularly, but has recorded nothing for three days."""
    recent = ctx.due_at - timedelta(days=3)
    return bool(
        await ctx.connection.fetchval(
            """
            SELECT count(DISTINCT (measured_at AT TIME ZONE $3)::date) >= 4 AND max(measured_at) < $2
            FROM measurements WHERE measured_at >= $1
            """,
            ctx.due_at - timedelta(days=14),
            recent,
            str(ctx.zone),
        )
    )


JOBS = (has_week_to_summarize, has_gap_to_ask_about)
