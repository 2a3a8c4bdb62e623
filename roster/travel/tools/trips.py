"""Tools for trips: a name, a destination and the days away. The status follows from the days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound, StateConflict
from butlers.sdk import SESSIONS, CallContext, Day, Effect, read_day, shown_source, tool, uuid7

Name = Annotated[str, Field(min_length=1, max_length=100)]
TripName = Annotated[
    str, Field(max_length=100, description="name; default: the current or next trip")
]
Notes = Annotated[str, Field(max_length=2000)]
Limit = Annotated[int, Field(ge=1, le=100)]
Status = Literal["planned", "active", "completed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Trip:
    id: UUID
    name: str
    destination: str | None
    starts_on: date
    ends_on: date
    is_cancelled: bool
    row: Any

    @classmethod
    def from_row(cls, row: Any) -> Trip:
        return cls(
            row["id"],
            row["name"],
            row["destination"],
            row["starts_on"],
            row["ends_on"],
            row["cancelled_at"] is not None,
            row,
        )

    def status(self, today: date) -> Status:
        if self.is_cancelled:
            return "cancelled"
        if today < self.starts_on:
            return "planned"
        return "active" if today <= self.ends_on else "completed"

    @property
    def days(self) -> str:
        first, last = self.starts_on, self.ends_on
        if first == last:
            return f"{first:%-d %B %Y}"
        if (first.year, first.month) == (last.year, last.month):
            return f"{first.day}–{last:%-d %B %Y}"
        year = "" if first.year == last.year else f" {first.year}"
        return f"{first:%-d %B}{year} – {last:%-d %B %Y}"

    @property
    def title(self) -> str:
        return f"{self.name}, {self.days}"


@tool(callers=SESSIONS)
async def trip_set(
    ctx: CallContext,
    name: Name,
    starts_on: Day | None = None,
    ends_on: Day | None = None,
    destination: Name | None = None,
    new_name: Name | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Add a trip, or change the given fields of the trip of this name. Without ends_on it is one day."""
    known = await find_trip(ctx, name)
    first = read_day(ctx, starts_on) if starts_on else known.starts_on if known else None
    if first is None:
        raise InvalidArguments(
            f"the first day of {name!r} is missing", hint='pass starts_on, such as "12 june"'
        )
    last = _last_day(ctx, first, ends_on, known)
    if last < first:
        raise InvalidArguments("the trip ends before it starts", hint="check the two days")
    if known is None:
        trip = await insert_trip(
            ctx, name, destination or _destination_of(name), first, last, notes
        )
        return {**shown_trip(ctx, trip), "text": f"Trip added: {trip.title}."}
    row = await ctx.connection.fetchrow(
        """
        UPDATE trips SET name = coalesce($2, name), destination = coalesce($3, destination),
            starts_on = $4, ends_on = $5, notes = coalesce($6, notes)
        WHERE id = $1 RETURNING *
        """,
        known.id,
        new_name,
        destination,
        first,
        last,
        notes,
    )
    trip = Trip.from_row(row)
    return {**shown_trip(ctx, trip), "text": f"Trip changed: {trip.title}."}


@tool(callers=SESSIONS)
async def trip_cancel(ctx: CallContext, trip: TripName | None = None) -> dict[str, Any]:
    """Cancel a planned or active trip. Everything stays readable; undo brings the trip back."""
    chosen = await require_trip(ctx, trip)
    status = chosen.status(today(ctx))
    if status not in ("planned", "active"):
        raise StateConflict(
            f"{chosen.name} is {status}", hint="only a planned or active trip can be cancelled"
        )
    row = await ctx.connection.fetchrow(
        "UPDATE trips SET cancelled_at = $2 WHERE id = $1 RETURNING *", chosen.id, ctx.now
    )
    cancelled = Trip.from_row(row)
    return {**shown_trip(ctx, cancelled), "text": f"Cancelled: {cancelled.title}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def trip_list(
    ctx: CallContext, status: Status | None = None, limit: Limit = 20, after: UUID | None = None
) -> dict[str, Any]:
    """List trips, newest first, optionally of one status. For the next page pass next as after."""
    conditions = {
        "planned": "cancelled_at IS NULL AND starts_on > $1",
        "active": "cancelled_at IS NULL AND starts_on <= $1 AND ends_on >= $1",
        "completed": "cancelled_at IS NULL AND ends_on < $1",
        "cancelled": "cancelled_at IS NOT NULL AND $1::date IS NOT NULL",
        None: "$1::date IS NOT NULL",
    }
    following = (
        ""
        if after is None
        else "AND (starts_on, id) < (SELECT starts_on, id FROM trips WHERE id = $3)"
    )
    rows = await ctx.connection.fetch(
        f"""
        SELECT * FROM trips WHERE {conditions[status]} {following}
        ORDER BY starts_on DESC, id DESC LIMIT $2
        """,
        today(ctx),
        limit + 1,
        *(() if after is None else (after,)),
    )
    found = [Trip.from_row(row) for row in rows[:limit]]
    more = {"next": str(found[-1].id)} if len(rows) > limit else {}
    lines = [f"{trip.title} ({trip.status(today(ctx))})" for trip in found]
    return {"trips": [shown_trip(ctx, trip) for trip in found], **more, "text": "\n".join(lines)}


async def insert_trip(
    ctx: CallContext,
    name: str,
    destination: str | None,
    first: date,
    last: date,
    notes: str | None = None,
) -> Trip:
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO trips (id, name, destination, starts_on, ends_on, notes)
        VALUES ($1, $2, $3, $4, $5, $6) RETURNING *
        """,
        uuid7(),
        name.strip(),
        destination,
        first,
        last,
        notes,
    )
    return Trip.from_row(row)


async def find_trip(ctx: CallContext, name: str) -> Trip | None:
    """Return the trip of this name or destination: one that is not over, the soonest first."""
    row = await ctx.connection.fetchrow(
        """
        SELECT * FROM trips WHERE lower($1) IN (lower(name), lower(destination))
        ORDER BY cancelled_at IS NOT NULL, ends_on < $2, abs(starts_on - $2) LIMIT 1
        """,
        name.strip(),
        today(ctx),
    )
    return Trip.from_row(row) if row else None


async def next_trip(ctx: CallContext) -> Trip | None:
    """Return the trip that is on, or the next one."""
    row = await ctx.connection.fetchrow(
        """
        WITH coming AS MATERIALIZED (
            SELECT * FROM trips WHERE cancelled_at IS NULL AND ends_on >= $1
            ORDER BY ends_on, starts_on LIMIT 50)
        SELECT * FROM coming ORDER BY starts_on, id LIMIT 1
        """,
        today(ctx),
    )
    return Trip.from_row(row) if row else None


async def require_trip(ctx: CallContext, name: str | None) -> Trip:
    """Return the named trip, or the current or next one. Raises NotFound with the names that exist."""
    found = await find_trip(ctx, name) if name else await next_trip(ctx)
    if found is not None:
        return found
    if name is None:
        raise NotFound("there is no coming trip", hint="add one: “trip to Lisbon 12 to 19 June”")
    rows = await ctx.connection.fetch("SELECT name FROM trips ORDER BY starts_on DESC LIMIT 100")
    names = [row["name"] for row in rows]
    near = get_close_matches(name, names, n=1, cutoff=0.6) or names[:3]
    hint = f"did you mean {near[0]!r}?" if near else "add it with trip_set"
    raise NotFound(f"there is no trip {name!r}", hint=hint)


async def widen(ctx: CallContext, trip: Trip, first: date, last: date) -> None:
    """Make the trip as long as its parts."""
    if first < trip.starts_on or last > trip.ends_on:
        await ctx.connection.execute(
            "UPDATE trips SET starts_on = least(starts_on, $2), ends_on = greatest(ends_on, $3)"
            " WHERE id = $1",
            trip.id,
            first,
            last,
        )


async def trip_on(ctx: CallContext, first: date, last: date) -> Trip | None:
    """Return the trip that these days belong to: they touch it, with at most a day between."""
    row = await ctx.connection.fetchrow(
        """
        SELECT * FROM trips WHERE cancelled_at IS NULL AND starts_on <= $2 AND ends_on >= $1
        ORDER BY starts_on LIMIT 1
        """,
        first - timedelta(days=1),
        last + timedelta(days=1),
    )
    return Trip.from_row(row) if row else None


def today(ctx: CallContext) -> date:
    day: date = ctx.now.astimezone(ctx.zone).date()
    return day


def _last_day(ctx: CallContext, first: date, ends_on: str | None, known: Trip | None) -> date:
    if ends_on:
        return read_day(ctx, ends_on)
    return max(known.ends_on, first) if known else first


def _destination_of(name: str) -> str | None:
    lead, _, place = name.strip().partition(" to ")
    return place or None if lead.casefold() == "trip" else name.strip()


def shown_trip(ctx: CallContext, trip: Trip) -> dict[str, Any]:
    return {
        "id": str(trip.id),
        "name": trip.name,
        "destination": trip.destination,
        "starts_on": trip.starts_on.isoformat(),
        "ends_on": trip.ends_on.isoformat(),
        "status": trip.status(today(ctx)),
        "notes": trip.row["notes"],
        **shown_source(ctx, trip.row),
    }


TOOLS = (trip_set, trip_cancel, trip_list)
