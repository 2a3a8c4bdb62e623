"""Tools for medications: what is taken, when, and how much is left."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Annotated, Any
from uuid import UUID

import asyncpg
from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.sdk import SESSIONS, CallContext, Day, Effect, read_day, shown_source, tool, uuid7

from .measurements import Notes, Number
from .schedule import DoseSchedule, read_times, read_weekdays
from .units import plain

Name = Annotated[str, Field(min_length=1, max_length=100)]
REFILL_DAYS = 7  # a supply for fewer days is worth a word
# Left: what was counted last, minus the doses taken since.
_ROWS = """
    SELECT medication.*, medication.stock - coalesce((
        SELECT sum(dose.quantity) FROM doses AS dose
        WHERE dose.medication_id = medication.id AND dose.taken_at >= medication.stock_at
          AND dose.status = 'taken'), 0) AS remaining
    FROM medications AS medication
"""


@dataclass(frozen=True, slots=True)
class Medication:
    id: UUID
    name: str
    dose: str | None
    quantity: Decimal
    schedule: DoseSchedule
    remaining: Decimal | None
    active: bool
    row: asyncpg.Record

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> Medication:
        schedule = DoseSchedule(
            read_times(row["times"]),
            row["starts_on"],
            row["ends_on"],
            row["every_days"],
            frozenset(row["weekdays"]),
        )
        left = None if row["remaining"] is None else max(row["remaining"], Decimal(0))
        return cls(
            row["id"], row["name"], row["dose"], row["quantity"], schedule, left, row["active"], row
        )

    @property
    def title(self) -> str:
        return f"{self.name} {self.dose}" if self.dose else self.name

    def days_left(self) -> int | None:
        """Return for how many days the supply lasts; None if that is unknown."""
        if self.remaining is None or not self.schedule.per_day:
            return None
        return math.floor(
            Fraction(self.remaining) / (Fraction(self.quantity) * self.schedule.per_day)
        )

    def needs_refill(self) -> bool:
        if self.remaining == 0:
            return True
        days = self.days_left()
        return days is not None and days < REFILL_DAYS


@tool(callers=SESSIONS)
async def medication_set(
    ctx: CallContext,
    name: Name,
    dose: Annotated[str, Field(max_length=60, description='strength, e.g. "400 mg"')] | None = None,
    times: Annotated[
        list[str], Field(max_length=12, description='["08:00","20:00"]; []: as needed')
    ]
    | None = None,
    weekdays: Annotated[list[str], Field(max_length=7, description='["mon","thu"]')] | None = None,
    every_days: Annotated[int, Field(ge=1, le=366)] | None = None,
    starts_on: Day | None = None,
    ends_on: Day | None = None,
    quantity: Annotated[Number, Field(gt=0, le=1000)] | None = None,
    stock: Annotated[Number, Field(ge=0, le=100_000)] | None = None,
    active: bool | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Add a medication, or change the given fields. quantity: pieces per dose; stock: pieces at hand."""
    found = await find_medication(ctx, name)
    fields = {
        "dose": dose,
        "times": None if times is None else [f"{clock:%H:%M}" for clock in read_times(times)],
        "weekdays": None if weekdays is None else sorted(read_weekdays(weekdays)),
        "every_days": every_days,
        "starts_on": read_day(ctx, starts_on, prefer="past") if starts_on else None,
        "ends_on": read_day(ctx, ends_on) if ends_on else None,
        "quantity": quantity,
        "stock": stock,
        "stock_at": None if stock is None else ctx.now,
        "active": active,
        "notes": notes,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    if found is None:
        await _refuse_near_name(ctx, name)
        medication = await add_medication(ctx, name, given)
        return {**shown_medication(ctx, medication), "text": f"Added: {_sentence(medication)}."}
    medication = await _change(ctx, found.id, given)
    return {**shown_medication(ctx, medication), "text": f"Changed: {_sentence(medication)}."}


@tool(callers=SESSIONS)
async def medication_refill(
    ctx: CallContext, name: Name, pieces: Annotated[Number, Field(gt=0, le=100_000)]
) -> dict[str, Any]:
    """Add bought pieces (tablets) to the supply of a medication."""
    found = await require_medication(ctx, name)
    counted = found.row["stock"]
    first = {} if counted is not None else {"stock_at": ctx.now}
    medication = await _change(ctx, found.id, {"stock": (counted or 0) + pieces, **first})
    return {
        **shown_medication(ctx, medication),
        "text": f"{medication.title}: {_supply(medication)}.",
    }


@tool(callers=SESSIONS, effect=Effect.READ)
async def medication_list(ctx: CallContext, include_stopped: bool = False) -> dict[str, Any]:
    """List medications with schedule, supply and days left."""
    rows = await ctx.connection.fetch(
        f"{_ROWS} WHERE active OR $1 ORDER BY lower(name) LIMIT 200", include_stopped
    )
    found = [Medication.from_row(row) for row in rows]
    return {
        "medications": [shown_medication(ctx, one) for one in found],
        "text": "\n".join(_sentence(one) for one in found),
    }


async def active_medications(connection: Any) -> list[Medication]:
    rows = await connection.fetch(f"{_ROWS} WHERE active ORDER BY lower(name)")
    return [Medication.from_row(row) for row in rows]


async def find_medication(ctx: CallContext, name: str) -> Medication | None:
    row = await ctx.connection.fetchrow(f"{_ROWS} WHERE lower(name) = lower($1)", name.strip())
    return Medication.from_row(row) if row else None


async def require_medication(ctx: CallContext, name: str) -> Medication:
    found = await find_medication(ctx, name)
    if found is None:
        await _refuse_near_name(ctx, name)
        raise NotFound(
            f"I know no medication {name!r}", hint=f"add it first: “add medication {name} 400 mg”"
        )
    return found


async def add_medication(ctx: CallContext, name: str, fields: dict[str, Any]) -> Medication:
    values = {"id": uuid7(), "name": name.strip(), "starts_on": today(ctx), **fields}
    columns = ", ".join(values)
    places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
    _check_days(values)
    await ctx.connection.execute(
        f"INSERT INTO medications ({columns}) VALUES ({places})", *values.values()
    )
    return await _by_id(ctx, values["id"])


async def _change(ctx: CallContext, record_id: UUID, fields: dict[str, Any]) -> Medication:
    if fields:
        named = ", ".join(f"{column} = ${number}" for number, column in enumerate(fields, 2))
        await ctx.connection.execute(
            f"UPDATE medications SET {named} WHERE id = $1", record_id, *fields.values()
        )
    medication = await _by_id(ctx, record_id)
    _check_days(dict(medication.row))
    return medication


async def _by_id(ctx: CallContext, record_id: UUID) -> Medication:
    row = await ctx.connection.fetchrow(f"{_ROWS} WHERE id = $1", record_id)
    assert row is not None
    return Medication.from_row(row)


def _check_days(values: dict[str, Any]) -> None:
    if values.get("weekdays") and (values.get("every_days") or 1) > 1:
        raise InvalidArguments(
            "weekdays and every_days exclude each other", hint="set every_days=1 or weekdays=[]"
        )
    if values.get("ends_on") and values["ends_on"] < values["starts_on"]:
        raise InvalidArguments("ends_on is before starts_on", hint="check the two dates")


async def _refuse_near_name(ctx: CallContext, name: str) -> None:
    """Ask back if a known medication has almost this name."""
    rows = await ctx.connection.fetch("SELECT name FROM medications")
    known = {row["name"].casefold(): row["name"] for row in rows}
    near = get_close_matches(name.strip().casefold(), known, n=1, cutoff=0.8)
    if near:
        raise NotFound(
            f"I know no medication {name!r}",
            hint=f"did you mean {known[near[0]]!r}? Then write that",
        )


def today(ctx: CallContext) -> date:
    now: datetime = ctx.now
    return now.astimezone(ctx.zone).date()


def _supply(medication: Medication) -> str:
    if medication.remaining is None:
        return "supply unknown"
    days = medication.days_left()
    for_days = "" if days is None else f", enough for {days} {'day' if days == 1 else 'days'}"
    return f"{plain(medication.remaining)} left{for_days}"


def _sentence(medication: Medication) -> str:
    pieces = "" if medication.quantity == 1 else f", {plain(medication.quantity)} each time"
    supply = "" if medication.remaining is None else f"; {_supply(medication)}"
    stopped = "" if medication.active else " (stopped)"
    return f"{medication.title}, {medication.schedule.text}{pieces}{supply}{stopped}"


def refill_text(medication: Medication) -> str:
    return f"{medication.title}: {_supply(medication)}"


def shown_medication(ctx: CallContext, medication: Medication) -> dict[str, Any]:
    ends = medication.schedule.ends_on
    return {
        "id": str(medication.id),
        "name": medication.name,
        "dose": medication.dose,
        "schedule": medication.schedule.text,
        "quantity": str(plain(medication.quantity)),
        "starts_on": medication.schedule.starts_on.isoformat(),
        "ends_on": ends.isoformat() if ends else None,
        "remaining": None if medication.remaining is None else str(plain(medication.remaining)),
        "days_left": medication.days_left(),
        "needs_refill": medication.needs_refill(),
        "active": medication.active,
        "notes": medication.row["notes"],
        **shown_source(ctx, medication.row),
    }


TOOLS = (medication_set, medication_refill, medication_list)
