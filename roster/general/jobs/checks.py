"""Cheap checks that decide whether a scheduled session has anything to say."""

from __future__ import annotations

from butlers.sdk import JobContext


async def has_open_items_for_tomorrow(job: JobContext) -> bool:
    """Return whether an open item is due by the end of tomorrow (in UTC, a day generous)."""
    due = await job.connection.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM list_items WHERE done_at IS NULL
              AND coalesce(due_on, due_at::date) <= ($1::timestamptz + interval '2 days')::date)
        """,
        job.due_at,
    )
    return bool(due)


JOBS = (has_open_items_for_tomorrow,)
