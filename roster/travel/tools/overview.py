"""Tools that answer: what is a trip like, what comes next, what is to do, and what time is it there."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    PeriodText,
    When,
    read_period,
    read_when,
    shown_source,
    tool,
)

from .documents import document_line
from .itinerary import open_points, read_itinerary
from .legs import leg_line
from .places import find_place, read_zone
from .trips import Trip, TripName, next_trip, require_trip, shown_trip, today

EXPIRY_DAYS = 180


@tool(callers=SESSIONS, effect=Effect.READ)
async def trip_show(ctx: CallContext, trip: TripName | None = None) -> dict[str, Any]:
    """Show one trip: days, legs and stays in local times, bookings, and what is still open."""
    chosen = await require_trip(ctx, trip)
    itinerary = await read_itinerary(ctx.connection, chosen)
    for row in itinerary.rows:
        shown_source(ctx, row)
    status = chosen.status(today(ctx))
    points = open_points(itinerary, today(ctx)) if status in ("planned", "active") else []
    head = f"{chosen.title} ({_countdown(ctx, chosen)})"
    todo = ("Still open:", *(f"- {point}" for point in points)) if points else ()
    return {
        **shown_trip(ctx, chosen),
        "itinerary": itinerary.lines(),
        "open": points,
        "text": "\n".join((head, *itinerary.lines(), *todo)),
    }


@tool(callers=SESSIONS, effect=Effect.READ, shared=True)
async def travel_upcoming(
    ctx: CallContext, days: Annotated[int, Field(ge=1, le=730)] = 60
) -> dict[str, Any]:
    """List what comes within some days: trips, departures, things to do, documents that expire."""
    until = today(ctx) + timedelta(days=days)
    trips = await ctx.connection.fetch(
        """
        WITH coming AS MATERIALIZED (SELECT * FROM trips WHERE cancelled_at IS NULL AND ends_on >= $1)
        SELECT * FROM coming WHERE starts_on <= $2 ORDER BY starts_on, id LIMIT 20
        """,
        today(ctx),
        until,
    )
    legs = await ctx.connection.fetch(
        """
        SELECT leg.* FROM legs AS leg JOIN trips AS trip ON trip.id = leg.trip_id
        WHERE leg.departs_at >= $1 AND leg.departs_at < $2 AND leg.cancelled_at IS NULL
          AND trip.cancelled_at IS NULL
        ORDER BY leg.departs_at LIMIT 20
        """,
        ctx.now,
        ctx.now + timedelta(days=days),
    )
    documents = await ctx.connection.fetch(
        "SELECT * FROM documents WHERE expires_on <= $1 ORDER BY expires_on LIMIT 20",
        today(ctx) + timedelta(days=EXPIRY_DAYS),
    )
    for row in (*trips, *legs, *documents):
        shown_source(ctx, row)
    found = [Trip.from_row(row) for row in trips]
    parts = {
        "trips": [f"{trip.title} ({_countdown(ctx, trip)})" for trip in found],
        "departures": [leg_line(row) for row in legs],
        "documents": [document_line(row, today(ctx)) for row in documents],
    }
    lines = [line for part in parts.values() for line in part]
    return {**parts, "text": "\n".join(lines) or f"Nothing within {days} days."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def travel_next(ctx: CallContext) -> dict[str, Any]:
    """Say when the next trip is (or which one is on), with its next departure."""
    trip = await next_trip(ctx)
    if trip is None:
        return {"trip": None, "text": "No trip is planned."}
    leg = await ctx.connection.fetchrow(
        """
        SELECT * FROM legs WHERE trip_id = $1 AND departs_at >= $2 AND cancelled_at IS NULL
        ORDER BY departs_at LIMIT 1
        """,
        trip.id,
        ctx.now,
    )
    if leg is not None:
        shown_source(ctx, leg)
    departure = f" Next: {leg_line(leg)}." if leg else ""
    text = f"{trip.title} ({_countdown(ctx, trip)}).{departure}"
    return {"trip": shown_trip(ctx, trip), "text": text}


@tool(callers=SESSIONS, effect=Effect.READ)
async def travel_statistics(ctx: CallContext, period: PeriodText = "this year") -> dict[str, Any]:
    """Count trips, days away, nights in stays, and legs by mode in a period; canceled ones do not count."""
    span = read_period(ctx, period)
    row = await ctx.connection.fetchrow(
        """
        SELECT count(*) AS trips, bool_and(trust = 'owner') AS all_trusted,
            sum(least(ends_on, $2) - greatest(starts_on, $1) + 1) AS days
        FROM trips WHERE cancelled_at IS NULL AND starts_on <= $2 AND ends_on >= $1
        """,
        span.first_day,
        span.last_day,
    )
    legs = await ctx.connection.fetch(
        """
        SELECT mode, count(*) AS count FROM legs
        WHERE departs_at >= $1 AND departs_at < $2 AND cancelled_at IS NULL GROUP BY mode ORDER BY 2 DESC, 1
        """,
        span.start,
        span.end,
    )
    assert row is not None
    if row["trips"] and not row["all_trusted"]:
        ctx.outside.add("trips of other people's messages")
    counts = {leg["mode"]: leg["count"] for leg in legs}
    modes = ", ".join(f"{count} {_plural(mode, count)}" for mode, count in counts.items())
    text = (
        f"{period}: {row['trips']} {_plural('trip', row['trips'])}, {row['days'] or 0} days away"
        f"{f', {modes}' if modes else ''}."
    )
    return {
        "period": period,
        "trips": row["trips"],
        "days": row["days"] or 0,
        "legs": counts,
        "text": text,
    }


@tool(callers=SESSIONS, effect=Effect.READ)
async def time_at(
    ctx: CallContext,
    place: Annotated[
        str, Field(min_length=1, max_length=80, description="city, IATA code or IANA zone")
    ],
    when: When = "now",
) -> dict[str, Any]:
    """Return the local time at a place, now or at an own time, and the difference."""
    known = find_place(place)
    if known is None and "/" not in place:
        raise InvalidArguments(
            f"I do not know the time zone of {place!r}",
            hint='write an IANA zone such as "Asia/Tokyo"',
        )
    zone = known.zone_info if known else read_zone(place)
    instant = read_when(ctx, when, prefer="future")
    there, here = instant.astimezone(zone), instant.astimezone(ctx.zone)
    ahead = ((there.utcoffset() or timedelta(0)) - (here.utcoffset() or timedelta(0))) / timedelta(
        hours=1
    )
    difference = "the same time as here" if ahead == 0 else f"{ahead:+g} hours"
    name = known.city if known else zone.key
    return {
        "place": name,
        "zone": zone.key,
        "local": there.isoformat(),
        "text": f"{name}: {there:%H:%M, %A %-d %B} ({difference}).",
    }


def _countdown(ctx: CallContext, trip: Trip) -> str:
    days = (trip.starts_on - today(ctx)).days
    status = trip.status(today(ctx))
    if status == "planned":
        return "tomorrow" if days == 1 else f"in {days} days"
    return status


def _plural(word: str, count: int) -> str:
    if count == 1:
        return word
    return {"ferry": "ferries", "bus": "buses"}.get(word, f"{word}s")


TOOLS = (trip_show, travel_upcoming, travel_next, travel_statistics, time_at)
