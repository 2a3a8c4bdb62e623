"""Places: airports and cities with their time zones, and local times of a place."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from butlers.domain.errors import InvalidArguments
from butlers.sdk import CallContext, read_when

_FILE = Path(__file__).with_name("places.tsv")
IATA_LENGTH = 3


@dataclass(frozen=True, slots=True)
class TravelPlace:
    """A place as the person names it, with its time zone."""

    name: str
    city: str
    zone: str
    is_known: bool = True

    @property
    def shown(self) -> str:
        return self.name if self.name == self.city else f"{self.name} ({self.city})"

    @property
    def zone_info(self) -> ZoneInfo:
        return ZoneInfo(self.zone)


@cache
def _table() -> dict[str, TravelPlace]:
    """Return the places of the table by code, city and other names, in lower case."""
    found: dict[str, TravelPlace] = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        code, city, zone, *more = line.split("\t")
        found[code.casefold()] = TravelPlace(code, city, zone)
        for name in (city, *(more[0].split(",") if more else ())):
            found.setdefault(name.casefold(), TravelPlace(city, city, zone))
    return found


def find_place(written: str) -> TravelPlace | None:
    """Return the place of an airport code or a city, or None."""
    return _table().get(" ".join(written.split()).casefold())


def read_place(
    ctx: CallContext, written: str, zone: str | None, *, is_airport: bool = False
) -> TravelPlace:
    """Return the place with the given zone, or with that of the table.

    An unknown city has the owner's zone. An unknown airport code is refused, because its zone matters.
    """
    name = " ".join(written.split())
    known = find_place(name)
    if zone is not None:
        return TravelPlace(
            known.name if known else name, known.city if known else name, read_zone(zone).key
        )
    if known is not None:
        return known
    if is_airport and len(name) == IATA_LENGTH:
        raise InvalidArguments(
            f"I do not know the time zone of {name!r}",
            hint='pass its zone, such as "Europe/Berlin", or write the city',
        )
    return TravelPlace(name, name, ctx.zone.key, is_known=False)


def read_zone(written: str) -> ZoneInfo:
    try:
        return ZoneInfo(written.strip())
    except (ZoneInfoNotFoundError, ValueError):
        raise InvalidArguments(
            f"{written!r} is not a time zone", hint='write an IANA name such as "Asia/Tokyo"'
        ) from None


def read_departure(ctx: CallContext, words: str, zone: ZoneInfo) -> datetime:
    """Return the instant of words that are local time at the place of departure."""
    return read_when(ctx, words, prefer="future", zone=zone).astimezone(zone)


def read_arrival(ctx: CallContext, words: str, zone: ZoneInfo, departs_at: datetime) -> datetime:
    """Return the instant of words that are local time at the place of arrival.

    A time of day alone is the first such time after the departure.
    """
    clock = _read_clock(words)
    if clock is None:
        return read_departure(ctx, words, zone)
    day = departs_at.astimezone(zone).date()
    arrival = at_local(datetime.combine(day, clock), zone)
    if arrival.astimezone(UTC) <= departs_at.astimezone(UTC):
        arrival = at_local(datetime.combine(day + timedelta(days=1), clock), zone)
    return arrival


def at_local(wall_clock: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant of a local time. A time that a clock change skips moves forward."""
    return wall_clock.replace(tzinfo=zone).astimezone(UTC).astimezone(zone)


def _read_clock(words: str) -> time | None:
    hour, mark, minute = words.strip().removeprefix("at ").partition(":")
    if not mark or not (hour.isdecimal() and minute.isdecimal()):
        return None
    try:
        return time(int(hour), int(minute))
    except ValueError:
        return None


def wall_clock(instant: datetime, zone: ZoneInfo) -> datetime:
    """Return the local time without a zone, as a ticket prints it."""
    return instant.astimezone(zone).replace(tzinfo=None)
