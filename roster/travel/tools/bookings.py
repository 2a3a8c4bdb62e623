"""Tools for stays and other bookings of a trip."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.sdk import (
    SESSIONS,
    CallContext,
    Day,
    ModuleConfig,
    MoneyText,
    When,
    read_day,
    read_money,
    read_when,
    shown_source,
    tool,
    uuid7,
)

from .legs import Short, Zone
from .places import read_place
from .trips import Name, Notes, Trip, TripName, insert_trip, require_trip, today, trip_on, widen

BookingKind = Literal[
    "flight", "train", "hotel", "car", "restaurant", "event", "insurance", "other"
]
MAX_NIGHTS = 366


class TravelConfig(ModuleConfig):
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] = "EUR"
    """Currency of a price that names none, an ISO code."""


@tool(callers=SESSIONS)
async def stay_add(
    ctx: CallContext,
    name: Name,
    check_in: Day,
    check_out: Day | None = None,
    nights: Annotated[int, Field(ge=1, le=MAX_NIGHTS)] | None = None,
    city: Short | None = None,
    address: Annotated[str, Field(max_length=200)] | None = None,
    zone: Zone | None = None,
    reference: Short | None = None,
    trip: TripName | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Add a hotel or other stay, with check_out or nights. The same stay twice is kept once."""
    first = read_day(ctx, check_in)
    last = first + timedelta(days=nights or 1) if check_out is None else read_day(ctx, check_out)
    if not first < last <= first + timedelta(days=MAX_NIGHTS):
        raise InvalidArguments(
            "check-out is not after check-in", hint="check the days, or pass nights"
        )
    place = read_place(ctx, city or name, zone)
    known = await ctx.connection.fetchrow(
        """
        SELECT * FROM stays WHERE check_in = $1 AND cancelled_at IS NULL
          AND (lower(name) = lower($2) OR upper(reference) = upper($3))
        """,
        first,
        name.strip(),
        reference,
    )
    if known is not None:
        return {
            **shown_stay(ctx, known),
            "duplicate": True,
            "text": f"Already recorded: {stay_line(known)}.",
        }
    chosen = await _trip_for(ctx, trip, city or name, first, last)
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO stays (id, trip_id, name, address, city, zone, check_in, check_out, reference, notes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING *
        """,
        uuid7(),
        chosen.id,
        name.strip(),
        address,
        city,
        place.zone,
        first,
        last,
        reference,
        notes,
    )
    return {
        **shown_stay(ctx, row),
        "trip": chosen.name,
        "text": f"Added to {chosen.name}: {stay_line(row)}.",
    }


@tool(callers=SESSIONS)
async def booking_add(
    ctx: CallContext,
    kind: BookingKind,
    title: Name,
    reference: Short | None = None,
    provider: Short | None = None,
    starts_at: When | None = None,
    price: MoneyText | None = None,
    trip: TripName | None = None,
    notes: Notes | None = None,
) -> dict[str, Any]:
    """Keep a booking with its reference and price. A reference that is known completes that booking."""
    money = read_money(price, TravelConfig.of(ctx).currency) if price else None
    when = read_when(ctx, starts_at, prefer="future") if starts_at else None
    day = when.astimezone(ctx.zone).date() if when else None
    values = (
        reference.strip().upper() if reference else None,
        provider,
        when,
        money.amount if money else None,
        money.currency if money else None,
        notes,
    )
    known = await _find_booking(ctx, kind, reference)
    if known is not None:
        row = await _complete(ctx, known, values)
        return {
            **shown_booking(ctx, row),
            "duplicate": True,
            "text": f"Already recorded: {booking_line(row)}.",
        }
    chosen = await (
        _trip_for(ctx, trip, title, day, day) if day or trip else require_trip(ctx, None)
    )
    row = await ctx.connection.fetchrow(
        """
        INSERT INTO bookings
            (id, trip_id, kind, title, reference, provider, starts_at, amount, currency, notes)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING *
        """,
        uuid7(),
        chosen.id,
        kind,
        title.strip(),
        *values,
    )
    return {
        **shown_booking(ctx, row),
        "trip": chosen.name,
        "text": f"Added to {chosen.name}: {booking_line(row)}.",
    }


async def _trip_for(
    ctx: CallContext, trip: str | None, title: str, first: date | None, last: date | None
) -> Trip:
    """Return the named trip, that of the days, or a new one; it becomes as long as its parts."""
    if trip:
        chosen = await require_trip(ctx, trip)
    else:
        start, end = first or today(ctx), last or first or today(ctx)
        chosen = await trip_on(ctx, start, end) or await insert_trip(
            ctx, f"Trip to {title}", title, start, end
        )
    if first and last:
        await widen(ctx, chosen, first, last)
    return chosen


async def _find_booking(ctx: CallContext, kind: str, reference: str | None) -> Any:
    return await ctx.connection.fetchrow(
        "SELECT * FROM bookings WHERE upper(reference) = upper($1) AND kind = $2",
        reference.strip() if reference else None,
        kind,
    )


async def _complete(ctx: CallContext, known: Mapping[str, Any], values: tuple[Any, ...]) -> Any:
    """Fill in what the recorded booking lacks."""
    _, provider, when, amount, currency, notes = values
    return await ctx.connection.fetchrow(
        """
        UPDATE bookings SET provider = coalesce(provider, $2), starts_at = coalesce(starts_at, $3),
            currency = CASE WHEN amount IS NULL THEN $5 ELSE currency END, amount = coalesce(amount, $4),
            notes = coalesce(notes, $6)
        WHERE id = $1 RETURNING *
        """,
        known["id"],
        provider,
        when,
        amount,
        currency,
        notes,
    )


def stay_line(row: Mapping[str, Any]) -> str:
    nights = (row["check_out"] - row["check_in"]).days
    city = f" in {row['city']}" if row["city"] else ""
    plural = "night" if nights == 1 else "nights"
    return f"{row['name']}{city}, {row['check_in']:%-d %B} – {row['check_out']:%-d %B %Y} ({nights} {plural})"


def booking_line(row: Mapping[str, Any]) -> str:
    reference = f", reference {row['reference']}" if row["reference"] else ""
    price = f", {row['amount']:.2f} {row['currency']}" if row["amount"] is not None else ""
    return f"{row['kind']} {row['title']}{reference}{price}"


def shown_stay(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "city": row["city"],
        "address": row["address"],
        "zone": row["zone"],
        "check_in": row["check_in"].isoformat(),
        "check_out": row["check_out"].isoformat(),
        "reference": row["reference"],
        "cancelled": row["cancelled_at"] is not None,
        **shown_source(ctx, row),
    }


def shown_booking(ctx: CallContext, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "kind": row["kind"],
        "title": row["title"],
        "reference": row["reference"],
        "provider": row["provider"],
        "starts_at": row["starts_at"].isoformat() if row["starts_at"] else None,
        "price": None if row["amount"] is None else f"{row['amount']:.2f} {row['currency']}",
        "cancelled": row["cancelled_at"] is not None,
        **shown_source(ctx, row),
    }


TOOLS = (stay_add, booking_add)
