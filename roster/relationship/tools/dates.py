"""Tools for birthdays and other dates that return every year. The year of a date may be unknown."""

from __future__ import annotations

from calendar import isleap
from datetime import date, timedelta
from typing import Annotated, Any

from pydantic import Field

from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    Effect,
    read_day,
    shown_source,
    tool,
    uuid7,
)

from .lookup import Row, find_or_create
from .settings import PersonText, Short, day_words, today_of

LONGEST = 366


@tool(callers=SESSIONS)
async def date_save(
    ctx: CallContext, person: PersonText, day: Day, label: Short = "birthday"
) -> dict[str, Any]:
    """Store a date of a person, with or without a year: "4 May", "4 May 1990"."""
    row, is_new = await find_or_create(ctx, person)
    on, year = read_day(ctx, day), named_year(day)
    name = " ".join(label.split()).casefold()
    stored = await ctx.connection.fetchrow(
        """
        INSERT INTO person_dates (id, person_id, label, month, day, year) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (person_id, label) DO UPDATE
        SET month = excluded.month, day = excluded.day, year = coalesce(excluded.year, person_dates.year)
        RETURNING *
        """,
        uuid7(),
        row["id"],
        name,
        on.month,
        on.day,
        year,
    )
    assert stored is not None
    new = " (new)" if is_new else ""
    text = f"Noted: {row['name']}{new}, {name} on {date_words(stored)}."
    return {"id": str(stored["id"]), "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def date_upcoming(
    ctx: CallContext, within_days: Annotated[int, Field(ge=0, le=LONGEST)] = 30
) -> dict[str, Any]:
    """List the next birthdays and other dates, soonest first, with the age that someone turns."""
    today = today_of(ctx)
    days = [today + timedelta(days=ahead) for ahead in range(within_days + 1)]
    found = await dates_on(ctx, days)
    lines = [f"{day_words(day, today)}: {describe(row, day)}" for day, row in found[:50]]
    return {
        "dates": [
            {
                "date": day.isoformat(),
                "person": row["name"],
                "label": row["label"],
                **({"turns": day.year - row["year"]} if row["year"] else {}),
                **shown_source(ctx, row),
            }
            for day, row in found[:50]
        ],
        "text": "\n".join(lines) or f"No dates in the next {within_days} days.",
    }


async def dates_on(ctx: Any, days: list[date]) -> list[tuple[date, Row]]:
    """Return the dates of the days. Of a context of a call or of a job."""
    wanted = {pair: day for day in reversed(days) for pair in month_days(day)}
    rows = await ctx.connection.fetch(
        """
        SELECT * FROM person_dates WHERE month * 100 + day = ANY($1::int[])
        """,
        [month * 100 + day for month, day in wanted],
    )
    # By their ids: in a join, the planner would read everyone.
    people = await ctx.connection.fetch(
        """
        SELECT id, name FROM people
        WHERE id = ANY($1::uuid[]) AND merged_into IS NULL AND NOT is_archived
        """,
        list({row["person_id"] for row in rows}),
    )
    names = {row["id"]: row["name"] for row in people}
    found: list[tuple[date, Row]] = [
        (wanted[row["month"], row["day"]], {**row, "name": names[row["person_id"]]})
        for row in rows
        if row["person_id"] in names
    ]
    return sorted(found, key=lambda one: (one[0], one[1]["name"], one[1]["label"]))


def month_days(day: date) -> list[tuple[int, int]]:
    """Return month and day of the dates that fall on the day: 29 February on the 28th of a common year."""
    pairs = [(day.month, day.day)]
    if pairs == [(2, 28)] and not isleap(day.year):
        pairs.append((2, 29))
    return pairs


def next_date(month: int, day: int, today: date) -> date:
    """Return the next day on which the date falls."""
    for year in (today.year, today.year + 1):
        short = (month, day) == (2, 29) and not isleap(year)
        found = date(year, month, 28 if short else day)
        if found >= today:
            return found
    raise AssertionError("a date falls on a day of each year")


def named_year(text: str) -> int | None:
    """Return the four-digit year in the words, or None."""
    pieces = "".join(char if char.isdigit() else " " for char in text).split()
    return next((int(piece) for piece in pieces if len(piece) == 4), None)


def date_words(row: Row) -> str:
    words = f"{date(2000, row['month'], row['day']):%-d %B}"
    return f"{words} {row['year']}" if row["year"] else words


def describe(row: Row, day: date) -> str:
    turns = f" ({day.year - row['year']})" if row["year"] else ""
    return f"{row['name']}, {row['label']}{turns}"


TOOLS = (date_save, date_upcoming)
