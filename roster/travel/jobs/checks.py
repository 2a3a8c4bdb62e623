"""Checks that decide whether a schedule has something to say."""

from __future__ import annotations

from datetime import timedelta

from butlers.sdk import JobContext

LEAD_DAYS = [7, 3, 1]  # days before a trip on which it is worth a message
EXPIRY_DAYS = [180, 90, 30, 14, 7]  # days before an expiry; the weekly check takes each once


async def has_upcoming_travel(ctx: JobContext) -> bool:
    """Return True on the days before a trip, when a leg departs soon, or when something is due."""
    day = ctx.due_at.astimezone(ctx.zone).date()
    return bool(
        await ctx.connection.fetchval(
            """
            SELECT EXISTS (SELECT FROM trips WHERE cancelled_at IS NULL AND starts_on - $1::date = ANY($2))
                OR EXISTS (SELECT FROM legs JOIN trips AS trip ON trip.id = legs.trip_id
                    WHERE departs_at >= $3 AND departs_at < $4 AND legs.cancelled_at IS NULL
                      AND trip.cancelled_at IS NULL)
                OR EXISTS (SELECT FROM tasks JOIN trips AS trip ON trip.id = tasks.trip_id
                    WHERE done_at IS NULL AND due_on BETWEEN $1 AND $1 + 1 AND trip.cancelled_at IS NULL)
            """,
            day,
            LEAD_DAYS,
            ctx.due_at,
            ctx.due_at + timedelta(hours=36),
        )
    )


async def has_expiring_document(ctx: JobContext) -> bool:
    """Return True in the week in which a document passes 180, 90, 30, 14 or 7 days before its expiry."""
    return bool(
        await ctx.connection.fetchval(
            """
            SELECT EXISTS (
                SELECT FROM documents, unnest($2::int[]) AS lead
                WHERE expires_on - $1::date BETWEEN lead - 6 AND lead)
            """,
            ctx.due_at.astimezone(ctx.zone).date(),
            EXPIRY_DAYS,
        )
    )


JOBS = (has_upcoming_travel, has_expiring_document)
