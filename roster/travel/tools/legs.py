"""Tool for legs: one ride or flight, in local time on both ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import SESSIONS, CallContext, When, shown_source, tool, uuid7

from .places import TravelPlace, read_arrival, read_departure, read_place, wall_clock
from .trips import Notes, Trip, TripName, insert_trip, require_trip, trip_on, widen

Mode = Literal["flight", "train", "bus", "ferry", "car", "other"]
Zone = Annotated[str, Field(max_length=64)]
Short = Annotated[str, Field(max_length=60)]
MAX_LENGTH = timedelta(hours=48)
RETURN_WITHIN = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class NewLeg:
    """A checked leg, ready to be stored."""

    mode: str
    number: str | None
    origin: TravelPlace
    departs_at: datetime
    destination: TravelPlace | None
    arrives_at: datetime | None
    carrier: str | None
    seat: str | None
    reference: str | None
    notes: str | None

    @property
    def title(self) -> str:
        return leg_title(
            self.mode,
            self.number,
            self.origin.name,
            self.destination.name if self.destination else None,
        )

    @property
    def last_at(self) -> datetime:
        return self.arrives_at or self.departs_at


@tool(callers=SESSIONS)
async def leg_add(
    ctx: CallContext,
    mode: Mode,
    origin: Annotated[str, Field(min_length=1, max_length=80, description="IATA code or city")],
    departs: Annotated[When, Field(description='local time there: "friday 9:40"')],
    destination: Annotated[str, Field(max_length=80)] | None = None,
    arrives: Annotated[When, Field(description='local time there: "11:05"')] | None = None,
    number: Annotated[str, Field(max_length=20, description="LH123, ICE 597")] | None = None,
    origin_zone: Zone | None = None,
    arrival_zone: Zone | None = None,
    carrier: Short | None = None,
    seat: Short | None = None,
    reference: Short | None = None,
    trip: TripName | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Add a flight, train, bus, ferry or drive. Zones (IANA) are needed only for places that are not known.

    It joins the trip of these days or starts a new one. The same number and departure twice is one leg.
    """
    start = read_place(ctx, origin, origin_zone, is_airport=mode == "flight")
    end = (
        read_place(ctx, destination, arrival_zone, is_airport=mode == "flight")
        if destination
        else None
    )
    departs_at = read_departure(ctx, departs, start.zone_info)
    arrives_at = (
        read_arrival(ctx, arrives, (end or start).zone_info, departs_at) if arrives else None
    )
    leg = NewLeg(
        mode, _number(number), start, departs_at, end, arrives_at, carrier, seat, reference, notes
    )
    check_times(departs_at, arrives_at)
    known = await _find_same(ctx, leg)
    if known is not None:
        row = await _complete(ctx, known, leg)
        return {
            **shown_leg(ctx, row),
            "duplicate": True,
            "text": f"Already recorded: {leg_line(row)}.",
        }
    chosen = await require_trip(ctx, trip) if trip else await _trip_for(ctx, leg)
    await widen(ctx, chosen, leg.departs_at.date(), leg.last_at.date())
    row = await _insert(ctx, chosen, leg)
    unsure = [place.name for place in (start, end) if place and not place.is_known]
    note = f" Times at {' and '.join(unsure)} are taken as {ctx.zone.key}." if unsure else ""
    return {
        **shown_leg(ctx, row),
        "trip": chosen.name,
        "text": f"Added to {chosen.name}: {leg_line(row)}.{note}",
    }


def check_times(departs_at: datetime, arrives_at: datetime | None) -> None:
    """Refuse an arrival before the departure, or one that is days later."""
    if arrives_at is None:
        return
    length = arrives_at.astimezone(UTC) - departs_at.astimezone(UTC)
    if not timedelta(0) < length <= MAX_LENGTH:
        raise InvalidArguments(
            "the arrival does not fit the departure",
            hint="both are local times at their places; check the days",
        )


async def _trip_for(ctx: CallContext, leg: NewLeg) -> Trip:
    """Return the trip of these days, the trip that this leg returns from, or a new one."""
    first, last = leg.departs_at.date(), leg.last_at.date()
    found = await trip_on(ctx, first, last) or await _trip_to_return_from(ctx, leg)
    if found is not None:
        return found
    city = leg.destination.city if leg.destination else None
    name = f"Trip to {city}" if city else f"Trip from {leg.origin.city}"
    return await insert_trip(ctx, name, city, first, last)


async def _trip_to_return_from(ctx: CallContext, leg: NewLeg) -> Trip | None:
    if leg.destination is None:
        return None
    row = await ctx.connection.fetchrow(
        """
        SELECT trip.* FROM trips AS trip JOIN legs AS leg ON leg.trip_id = trip.id
        WHERE trip.cancelled_at IS NULL AND leg.cancelled_at IS NULL AND leg.departs_at < $1
          AND leg.departs_at > $2 AND leg.origin = ANY($3)
          AND leg.departs_at = (SELECT min(departs_at) FROM legs WHERE trip_id = trip.id)
          AND NOT EXISTS (SELECT FROM legs WHERE trip_id = trip.id AND destination = ANY($3))
        ORDER BY leg.departs_at DESC LIMIT 1
        """,
        leg.departs_at,
        leg.departs_at - RETURN_WITHIN,
        [leg.destination.name, leg.destination.city],
    )
    return Trip.from_row(row) if row else None


async def _find_same(ctx: CallContext, leg: NewLeg) -> Any:
    return await ctx.connection.fetchrow(
        """
        SELECT * FROM legs WHERE upper(number) = upper($1) AND departs_at = $2 AND cancelled_at IS NULL
        """,
        leg.number,
        leg.departs_at,
    )


async def _complete(ctx: CallContext, known: Mapping[str, Any], leg: NewLeg) -> Any:
    """Fill in what the recorded leg lacks."""
    end = leg.destination
    fits = end is not None and known["destination"] in (None, end.name)
    return await ctx.connection.fetchrow(
        """
        UPDATE legs SET destination = coalesce(destination, $2), arrival_zone = coalesce(arrival_zone, $3),
            arrives_local = coalesce(arrives_local, $4), arrives_at = coalesce(arrives_at, $5),
            carrier = coalesce(carrier, $6), seat = coalesce(seat, $7), reference = coalesce(reference, $8),
            title = $9
        WHERE id = $1 RETURNING *
        """,
        known["id"],
        end.name if end and fits else None,
        end.zone if end and fits else None,
        wall_clock(leg.arrives_at, end.zone_info) if end and fits and leg.arrives_at else None,
        leg.arrives_at if fits else None,
        leg.carrier,
        leg.seat,
        leg.reference,
        leg.title if fits else known["title"],
    )


async def _insert(ctx: CallContext, trip: Trip, leg: NewLeg) -> Any:
    end = leg.destination or leg.origin
    return await ctx.connection.fetchrow(
        """
        INSERT INTO legs (id, trip_id, mode, title, number, origin, origin_zone, departs_local, departs_at,
            destination, arrival_zone, arrives_local, arrives_at, carrier, seat, reference, notes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) RETURNING *
        """,
        uuid7(),
        trip.id,
        leg.mode,
        leg.title,
        leg.number,
        leg.origin.name,
        leg.origin.zone,
        wall_clock(leg.departs_at, leg.origin.zone_info),
        leg.departs_at,
        leg.destination.name if leg.destination else None,
        leg.destination.zone if leg.destination else None,
        wall_clock(leg.arrives_at, end.zone_info) if leg.arrives_at else None,
        leg.arrives_at,
        leg.carrier,
        leg.seat,
        leg.reference,
        leg.notes,
    )


def _number(written: str | None) -> str | None:
    return "".join(written.split()).upper() if written else None


def leg_title(mode: str, number: str | None, origin: str, destination: str | None) -> str:
    named = f"{mode} {number}" if number else mode
    return f"{named} {origin} → {destination}" if destination else f"{named} from {origin}"


def leg_line(row: Mapping[str, Any]) -> str:
    """Return the leg in one line, with local times on both ends."""
    departs, arrives = row["departs_local"], row["arrives_local"]
    line = f"{row['title']}, {departs:%a %-d %B %Y, %H:%M}"
    if arrives is None:
        return line
    later = (arrives.date() - departs.date()).days
    days = "" if later == 0 else f" ({later:+d} day)"
    zones = "" if row["arrival_zone"] in (None, row["origin_zone"]) else " local time"
    return f"{line} – {arrives:%H:%M}{days}{zones}"


def shown_leg(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    length = (
        None
        if row["arrives_at"] is None
        else int((row["arrives_at"] - row["departs_at"]).total_seconds() // 60)
    )
    return {
        "id": str(row["id"]),
        "mode": row["mode"],
        "number": row["number"],
        "origin": row["origin"],
        "departs_local": row["departs_local"].isoformat(),
        "origin_zone": row["origin_zone"],
        "departs_at": row["departs_at"].isoformat(),
        "destination": row["destination"],
        "arrives_local": row["arrives_local"].isoformat() if row["arrives_local"] else None,
        "arrival_zone": row["arrival_zone"],
        "minutes": length,
        "seat": row["seat"],
        "reference": row["reference"],
        "cancelled": row["cancelled_at"] is not None,
        **shown_source(ctx, row),
    }


TOOLS = (leg_add,)
