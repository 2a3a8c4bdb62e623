"""Checks that run before a scheduled session: a day with nothing to say starts none."""

from __future__ import annotations

from datetime import timedelta

from butlers.sdk import JobContext

from ..tools.recurrence import next_on_or_after

DAYS_AHEAD = 3


async def bills_are_due(job: JobContext) -> bool:
    """Return True if a bill is overdue or due within three days."""
    limit = job.today + timedelta(days=DAYS_AHEAD)
    return bool(
        await job.connection.fetchval(
            "SELECT true FROM bills WHERE status = 'active' AND kind = 'bill' AND next_due <= $1 LIMIT 1",
            limit,
        )
    )


async def subscriptions_renew(job: JobContext) -> bool:
    """Return True if a subscription renews in exactly three days, so that each is announced once."""
    rows = await job.connection.fetch(
        "SELECT next_due, repeats FROM bills WHERE status = 'active' AND kind = 'subscription'"
    )
    wanted = job.today + timedelta(days=DAYS_AHEAD)
    return any(next_on_or_after(row["next_due"], row["repeats"], wanted) == wanted for row in rows)


async def last_month_has_spending(job: JobContext) -> bool:
    """Return True if anything was booked in the month before."""
    last = job.today.replace(day=1) - timedelta(days=1)
    return bool(
        await job.connection.fetchval(
            "SELECT true FROM transactions WHERE posted_on BETWEEN $1 AND $2 LIMIT 1",
            last.replace(day=1),
            last,
        )
    )


JOBS = (bills_are_due, subscriptions_renew, last_month_has_spending)
