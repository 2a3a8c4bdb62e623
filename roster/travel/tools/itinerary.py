"""A trip with its parts, and what is still to do before leaving. Facts only, read from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from .bookings import booking_line, stay_line
from .documents import document_line
from .legs import leg_line
from .places import find_place
from .trips import Trip

SHORT_CONNECTION = timedelta(minutes=60)
PASSPORT_VALIDITY = timedelta(days=183)
IDENTITY = ("passport", "id card")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Itinerary:
    trip: Trip
    legs: Rows
    stays: Rows
    bookings: Rows
    tasks: Rows
    documents: Rows

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        return [
            self.trip.row,
            *self.legs,
            *self.stays,
            *self.bookings,
            *self.tasks,
            *self.documents,
        ]

    def lines(self) -> list[str]:
        """Return the parts in the order of their times."""
        parts = [(row["departs_local"].isoformat(), leg_line(row)) for row in self.legs]
        parts += [(f"{row['check_in']}T15:00", stay_line(row)) for row in self.stays]
        parts += [
            (row["starts_at"].isoformat() if row["starts_at"] else "9", booking_line(row))
            for row in self.bookings
        ]
        return [line for _, line in sorted(parts)]


async def read_itinerary(connection: Any, trip: Trip) -> Itinerary:
    def part(table: str, order: str) -> Any:
        return connection.fetch(
            f"SELECT * FROM {table} WHERE trip_id = $1 AND cancelled_at IS NULL ORDER BY {order}",
            trip.id,
        )

    return Itinerary(
        trip,
        await part("legs", "departs_at"),
        await part("stays", "check_in"),
        await part("bookings", "starts_at, id"),
        await connection.fetch(
            "SELECT * FROM tasks WHERE trip_id = $1 AND done_at IS NULL ORDER BY due_on, id LIMIT 200",
            trip.id,
        ),
        await connection.fetch(
            """
            SELECT * FROM documents WHERE expires_on <= $1
            UNION SELECT * FROM documents WHERE kind = ANY($2) ORDER BY expires_on, id LIMIT 50
            """,
            trip.ends_on + PASSPORT_VALIDITY,
            list(IDENTITY),
        ),
    )


def open_points(itinerary: Itinerary, day: date) -> list[str]:
    """Return what is missing or still to do, the most urgent first."""
    return [
        *_document_points(itinerary, day),
        *_leg_points(itinerary),
        *_night_points(itinerary),
        *_task_points(itinerary),
    ]


def _document_points(itinerary: Itinerary, day: date) -> list[str]:
    trip, points = itinerary.trip, []
    if not any(row["kind"] in IDENTITY and row["holder"] == "me" for row in itinerary.documents):
        points.append("No passport or ID card is recorded.")
    for row in itinerary.documents:
        expiry = row["expires_on"]
        if expiry is None:
            continue
        if expiry < trip.ends_on:
            points.append(f"{_sentence(document_line(row, day))}: before the trip ends.")
        elif row["kind"] == "passport" and expiry < trip.ends_on + PASSPORT_VALIDITY:
            line = _sentence(document_line(row, day))
            points.append(f"{line}: some countries ask for six months after the trip.")
    return points


def _leg_points(itinerary: Itinerary) -> list[str]:
    legs = itinerary.legs
    points = [
        f"{_sentence(leg['title'])}: no arrival time is recorded."
        for leg in legs
        if leg["destination"] is not None and leg["arrives_at"] is None
    ]
    for before, after in pairwise(legs):
        if before["arrives_at"] is None:
            continue
        gap = after["departs_at"] - before["arrives_at"]
        if gap < timedelta(0):
            points.append(f"{_sentence(after['title'])} departs before {before['title']} arrives.")
        elif gap < SHORT_CONNECTION:
            minutes = int(gap.total_seconds() // 60)
            points.append(f"Only {minutes} minutes between {before['title']} and {after['title']}.")
    if legs and itinerary.trip.ends_on > itinerary.trip.starts_on and not _returns(legs):
        points.append(f"No way back to {legs[0]['origin']} is recorded.")
    return points


def _returns(legs: Rows) -> bool:
    start, end = legs[0]["origin"], legs[-1]["destination"]
    if end is None or len(legs) < 2:
        return False
    first, last = find_place(start), find_place(end)
    return start == end or (first is not None and last is not None and first.city == last.city)


def _night_points(itinerary: Itinerary) -> list[str]:
    """Return the nights without a bed: neither in a stay nor on the way."""
    trip, missing = itinerary.trip, []
    for number in range((trip.ends_on - trip.starts_on).days):
        night = trip.starts_on + timedelta(days=number)
        in_stay = any(row["check_in"] <= night < row["check_out"] for row in itinerary.stays)
        if not in_stay and not any(_is_on_the_way(leg, night) for leg in itinerary.legs):
            missing.append(night)
    if not missing:
        return []
    nights = ", ".join(f"{night:%-d %B}" for night in missing[:5])
    more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
    return [f"No place to sleep is recorded for the night of {nights}{more}."]


def _is_on_the_way(leg: Mapping[str, Any], night: date) -> bool:
    arrives = leg["arrives_local"]
    return arrives is not None and leg["departs_local"].date() <= night < arrives.date()


def _task_points(itinerary: Itinerary) -> list[str]:
    before = [row for row in itinerary.tasks if row["list"] == "before"]
    packing = [row for row in itinerary.tasks if row["list"] == "packing"]
    points = [f"{_sentence(row['title'])}{_by(row['due_on'])}." for row in before]
    if packing:
        points.append(f"{len(packing)} {'thing' if len(packing) == 1 else 'things'} to pack.")
    return points


def _by(due_on: date | None) -> str:
    return f" (by {due_on:%-d %B})" if due_on else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
