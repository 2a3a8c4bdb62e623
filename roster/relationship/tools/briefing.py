"""Lines of the morning brief and the evening review about people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from butlers.sdk import CallContext, shown_source

from .dates import dates_on, describe
from .settings import day_words, today_of
from .touch import overdue_people

DAYS_AHEAD = 7


async def morning_lines(ctx: CallContext) -> Sequence[str]:
    """Return the dates of today, tomorrow and the day in a week, and on Monday who waits."""
    today = today_of(ctx)
    days = [today + timedelta(days=ahead) for ahead in (0, 1, DAYS_AHEAD)]
    lines = []
    for day, row in await dates_on(ctx, days):
        shown_source(ctx, row)
        lines.append(f"{describe(row, day)}: {day_words(day, today)}.")
    if today.weekday() == 0:
        waiting = await overdue_people(ctx, ctx.now)
        for row in waiting:
            shown_source(ctx, row)
        if waiting:
            names = ", ".join(row["name"] for row in waiting[:5])
            lines.append(f"Time to get in touch: {names}.")
    return lines[:10]
