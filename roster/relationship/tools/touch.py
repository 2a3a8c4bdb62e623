"""Tools for staying in touch: an interval per person, and who is due."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, Effect, shown_source, tool

from .lookup import Row, find_or_create
from .settings import PersonText, ago_words, today_of

_DAYS = {
    1: "day days tag tage",
    7: "week weeks weekly woche wochen wöchentlich",
    30: "month months monthly monat monate monatlich",
    91: "quarter quarterly quartal",
    365: "year years yearly jahr jahre jährlich",
}
_DAYS_OF = {word: days for days, words in _DAYS.items() for word in words.split()}
_COUNTS = {"two": 2, "zwei": 2, "three": 3, "drei": 3, "four": 4, "vier": 4, "six": 6, "sechs": 6}


@tool(callers=SESSIONS)
async def stay_in_touch_set(
    ctx: CallContext,
    person: PersonText,
    every: Annotated[str, Field(max_length=40, description='"2 weeks", "month", "never"')],
) -> dict[str, Any]:
    """Set how often the owner wants to be in contact with a person."""
    row, is_new = await find_or_create(ctx, person)
    days = read_interval(every)
    await ctx.connection.execute(
        "UPDATE people SET stay_in_touch_days = $2 WHERE id = $1", row["id"], days
    )
    name = f"{row['name']}{' (new)' if is_new else ''}"
    text = f"Stay in touch with {name}: every {days} days." if days else f"No interval for {name}."
    return {"person": row["name"], "days": days, "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def stay_in_touch_due(ctx: CallContext) -> dict[str, Any]:
    """List the people whom the owner has not been in contact with for longer than intended."""
    today = today_of(ctx)
    rows = await overdue_people(ctx, ctx.now)
    found = [(row, _last_day(ctx, row)) for row in rows]
    lines = [f"{row['name']}: {_since(day, today)}" for row, day in found]
    people = [
        {
            "person": row["name"],
            "every_days": row["stay_in_touch_days"],
            "last_contact": day.isoformat() if day else None,
            **shown_source(ctx, row),
        }
        for row, day in found
    ]
    return {"people": people, "text": "\n".join(lines) or "You are in touch with everyone."}


async def overdue_people(ctx: Any, now: datetime) -> list[Row]:
    """Return the people who wait, longest first. Of a context of a call or of a job."""
    rows: list[Row] = await ctx.connection.fetch(
        """
        SELECT p.*, last.at FROM people AS p
        LEFT JOIN LATERAL (SELECT happened_at AS at FROM interactions AS i WHERE i.person_id = p.id
                           ORDER BY happened_at DESC, id DESC LIMIT 1) AS last ON true
        WHERE p.stay_in_touch_days IS NOT NULL AND p.merged_into IS NULL AND NOT p.is_archived
          AND coalesce(last.at, p.created_at) < $1::timestamptz - make_interval(days => p.stay_in_touch_days)
        ORDER BY last.at NULLS FIRST, p.name LIMIT 50
        """,
        now,
    )
    return rows


def read_interval(text: str) -> int | None:
    """Return the days of "2 weeks", "month" or "every 10 days"; None for "never"."""
    words = " ".join(text.split()).casefold().removeprefix("every ").removeprefix("alle ")
    words = words.removeprefix("jede ").removeprefix("jeden ").removeprefix("jedes ")
    if words in ("never", "nie", "no", "none"):
        return None
    number, _, unit = words.rpartition(" ")
    count = _COUNTS.get(number) or (int(number) if number.isdecimal() else 1 if not number else 0)
    days = _DAYS_OF.get(unit, 0) * count
    if not 0 < days <= 3660:
        raise InvalidArguments(f"{text!r} is not an interval", hint='write "2 weeks" or "month"')
    return days


def _last_day(ctx: CallContext, row: Row) -> date | None:
    last: date | None = row["at"].astimezone(ctx.zone).date() if row["at"] else None
    return last


def _since(day: date | None, today: date) -> str:
    return f"last contact {ago_words(day, today)}" if day else "no contact recorded"


TOOLS = (stay_in_touch_set, stay_in_touch_due)
