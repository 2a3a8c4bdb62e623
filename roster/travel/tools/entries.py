"""Tools for entries of every kind: find, change and delete them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import Field

from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    EntryChanges,
    EntryQuery,
    EntryRow,
    PeriodText,
    RecordKind,
    change_entry,
    delete_entry,
    find_entries,
    read_day,
    tool,
)

from .bookings import booking_line, stay_line
from .checklists import item_line
from .documents import document_title
from .legs import check_times, leg_line, leg_title
from .places import TravelPlace, read_arrival, read_departure, read_place, wall_clock
from .trips import Limit, Trip

Kind = Literal["trip", "leg", "stay", "booking", "document", "item"]
Query = Annotated[str, Field(max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=200)]


class TripChanges(EntryChanges):
    name: Text | None = None
    destination: Text | None = None
    starts_on: str | None = None
    ends_on: str | None = None
    notes: str | None = None


class LegChanges(EntryChanges):
    number: Text | None = None
    origin: Text | None = None
    origin_zone: Text | None = None
    departs: str | None = None
    destination: Text | None = None
    arrival_zone: Text | None = None
    arrives: str | None = None
    carrier: str | None = None
    seat: str | None = None
    reference: str | None = None
    cancelled: bool | None = None
    notes: str | None = None


class StayChanges(EntryChanges):
    name: Text | None = None
    city: str | None = None
    address: str | None = None
    check_in: str | None = None
    check_out: str | None = None
    reference: str | None = None
    cancelled: bool | None = None
    notes: str | None = None


class BookingChanges(EntryChanges):
    title: Text | None = None
    provider: str | None = None
    amount: Annotated[Decimal, Field(ge=0)] | None = None
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] | None = None
    cancelled: bool | None = None
    notes: str | None = None


class DocumentChanges(EntryChanges):
    number: str | None = None
    country: str | None = None
    issued_on: str | None = None
    expires_on: str | None = None
    notes: str | None = None


class ItemChanges(EntryChanges):
    title: Text | None = None
    due_on: str | None = None


@tool(callers=SESSIONS, effect=Effect.READ)
async def travel_find(
    ctx: CallContext,
    query: Query | None = None,
    kind: Kind | None = None,
    period: PeriodText = "all",
    limit: Limit = 20,
    after: UUID | None = None,
) -> dict[str, Any]:
    """List or search entries by words or reference, newest first. Next page of a kind: pass next as after."""
    return await find_entries(ctx, KINDS, EntryQuery(query, kind, period, limit, after))


@tool(callers=SESSIONS)
async def travel_change(ctx: CallContext, id: UUID, changes: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    """Change fields of one entry, e.g. {"departs": "friday 10:15"} or {"cancelled": true}."""
    return await change_entry(ctx, KINDS, id, changes)


@tool(callers=SESSIONS)
async def travel_delete(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Delete one entry of any kind (a trip with all its parts). undo brings it back."""
    return await delete_entry(ctx, KINDS, id)


async def _read_days(ctx: CallContext, row: EntryRow, given: dict[str, Any]) -> dict[str, Any]:
    """Read the days and whether the entry is canceled."""
    for column in (
        "starts_on",
        "ends_on",
        "check_in",
        "check_out",
        "issued_on",
        "expires_on",
        "due_on",
    ):
        if given.get(column) is not None:
            given[column] = read_day(ctx, given[column])
    if "cancelled" in given:
        given["cancelled_at"] = ctx.now if given.pop("cancelled") else None
    return given


async def _read_leg(ctx: CallContext, row: EntryRow, given: dict[str, Any]) -> dict[str, Any]:
    """Compute places, local times and instants together, because they depend on each other."""
    given = await _read_days(ctx, row, given)
    is_airport = row["mode"] == "flight"
    start = _place(ctx, row, given, "origin", "origin_zone", is_airport)
    end = _place(ctx, row, given, "destination", "arrival_zone", is_airport)
    departs, arrives = given.pop("departs", None), given.pop("arrives", None)
    assert start is not None
    departs_at = (
        read_departure(ctx, departs, start.zone_info)
        if departs
        else _moved(row["departs_local"], start.zone_info)
    )
    arrival_zone = (end or start).zone_info
    arrives_at = (
        read_arrival(ctx, arrives, arrival_zone, departs_at)
        if arrives
        else _moved(row["arrives_local"], arrival_zone)
    )
    check_times(departs_at, arrives_at)
    number = given.get("number", row["number"])
    return {
        **given,
        "origin": start.name,
        "origin_zone": start.zone,
        "departs_local": wall_clock(departs_at, start.zone_info),
        "departs_at": departs_at,
        "destination": end.name if end else None,
        "arrival_zone": end.zone if end else None,
        "arrives_local": wall_clock(arrives_at, arrival_zone) if arrives_at else None,
        "arrives_at": arrives_at,
        "title": leg_title(row["mode"], number, start.name, end.name if end else None),
    }


def _place(
    ctx: CallContext, row: EntryRow, given: dict[str, Any], name: str, zone: str, is_airport: bool
) -> TravelPlace | None:
    """Return the changed place, or the recorded one with its recorded zone."""
    written, zone_name = given.pop(name, None), given.pop(zone, None)
    if written is None and row[name] is None:
        return None
    recorded = zone_name or (row[zone] if written is None else None)
    return read_place(ctx, written or row[name], recorded, is_airport=is_airport)


def _moved(local: datetime | None, zone: ZoneInfo) -> Any:
    return None if local is None else local.replace(tzinfo=zone)


KINDS: dict[str, RecordKind] = {
    "trip": RecordKind(
        "trips",
        "starts_on",
        "name || ' ' || coalesce(destination, '') || ' ' || coalesce(notes, '')",
        TripChanges,
        lambda row: Trip.from_row(row).title,
        _read_days,
        tuple(
            f"DELETE FROM {table} WHERE trip_id = $1"
            for table in ("legs", "stays", "bookings", "tasks")
        ),
    ),
    "leg": RecordKind(
        "legs",
        "departs_at",
        "title || ' ' || coalesce(reference, '') || ' ' || coalesce(notes, '')",
        LegChanges,
        leg_line,
        _read_leg,
    ),
    "stay": RecordKind(
        "stays",
        "check_in",
        "name || ' ' || coalesce(city, '') || ' ' || coalesce(reference, '') || ' ' || coalesce(notes, '')",
        StayChanges,
        stay_line,
        _read_days,
    ),
    "booking": RecordKind(
        "bookings",
        "created_at",
        "title || ' ' || coalesce(reference, '') || ' ' || coalesce(provider, '')"
        " || ' ' || coalesce(notes, '')",
        BookingChanges,
        booking_line,
        _read_days,
    ),
    "document": RecordKind(
        "documents",
        "created_at",
        "kind || ' ' || holder || ' ' || coalesce(number, '') || ' ' || coalesce(notes, '')",
        DocumentChanges,
        document_title,
        _read_days,
    ),
    "item": RecordKind("tasks", "created_at", "title", ItemChanges, item_line, _read_days),
}

TOOLS = (travel_find, travel_change, travel_delete)
