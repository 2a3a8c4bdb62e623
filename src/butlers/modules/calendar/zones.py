"""Time zones of events: IANA names, names of Windows, and names that somebody invented."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

from butlers.domain.errors import InvalidArguments

MAX_NAME = 100


@lru_cache(maxsize=1)
def _by_folded_name() -> dict[str, str]:
    names = {name.casefold(): name for name in available_timezones()}
    windows = {name.casefold(): zone for name, zone in WINDOWS_TO_OLSON.items()}
    return {**windows, **names}


def known_zone(name: str) -> str | None:
    """Return the IANA name of a zone, also for a name of Windows; None for an unknown one.

    Calendar programs write prefixes such as ``/freeassociation.sourceforge.net/Europe/Berlin``.
    """
    folded = name.strip().strip('"').casefold()
    if not folded or len(folded) > MAX_NAME:
        return None
    pieces = folded.strip("/").split("/")
    tails = ["/".join(pieces[index:]) for index in range(len(pieces))]
    return next((_by_folded_name()[tail] for tail in tails if tail in _by_folded_name()), None)


def read_zone(name: str) -> str:
    """Return the IANA name. Raises InvalidArguments for an unknown zone."""
    found = known_zone(name)
    if found is None:
        raise InvalidArguments(
            f"there is no time zone {name[:MAX_NAME]!r}", hint="write one such as Europe/Berlin"
        )
    return found


def instant_of(local: datetime, zone: str | None) -> datetime:
    """Return the instant of a local time; without a zone, the local time written as UTC.

    A time that a clock change skips counts from before the change; of a repeated one the first counts.
    """
    return local.replace(tzinfo=ZoneInfo(zone) if zone else UTC, fold=0).astimezone(UTC)


def local_of(instant: datetime, zone: str | None) -> datetime:
    """Return the local time of an instant, without a zone."""
    return instant.astimezone(ZoneInfo(zone) if zone else UTC).replace(tzinfo=None)
