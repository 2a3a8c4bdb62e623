"""Checks that run before a scheduled session: a day with nothing to say starts none."""

from __future__ import annotations

from datetime import timedelta

from butlers.sdk import JobContext

from ..tools.dates import dates_on
from ..tools.touch import overdue_people

DAYS_AHEAD = 7


async def dates_are_near(job: JobContext) -> bool:
    """Return True if a date falls on today or on the day in a week."""
    return bool(await dates_on(job, [job.today, job.today + timedelta(days=DAYS_AHEAD)]))


async def people_wait(job: JobContext) -> bool:
    """Return True if someone waits for contact, or a loan is due within a week."""
    due = await job.connection.fetchval(
        "SELECT true FROM loans WHERE settled_on IS NULL AND due_on <= $1 LIMIT 1",
        job.today + timedelta(days=DAYS_AHEAD),
    )
    return bool(due or await overdue_people(job, job.due_at))


JOBS = (dates_are_near, people_wait)
