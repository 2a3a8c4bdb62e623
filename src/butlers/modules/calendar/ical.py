"""iCalendar files: read into events, and written back without losing what we do not know.

Files come from outside: they are bounded, and an event that cannot be read is reported and left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from icalendar import Alarm, Calendar, Event, vCalAddress
from icalendar.prop import vRecur

from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError, InvalidArguments
from butlers.modules.calendar.model import CalendarEvent
from butlers.modules.calendar.rules import read_rule
from butlers.modules.calendar.words import EventTimes, checked
from butlers.modules.calendar.zones import known_zone

MAX_BYTES = 10 * 2**20
MAX_EVENTS = 20_000
MAX_DATES = 1_000  # excluded or added dates of one event
MAX_TITLE, MAX_TEXT = 300, 10_000
WRITE_ID = "X-BUTLERS-WRITE"  # of the write that made the file, to recognize it after a crash
_STATUSES = {"TENTATIVE": "tentative", "CANCELLED": "cancelled"}
_CLASSES = {"PRIVATE": "private", "CONFIDENTIAL": "private", "PUBLIC": "public"}
_ANSWERS = frozenset(("accepted", "declined", "tentative", "delegated"))
Components = dict[
    datetime | None, CalendarEvent
]  # by the local time that they replace; None: the event


@dataclass(frozen=True, slots=True)
class CalendarFile:
    """Events of a file by uid, and what could not be read."""

    method: str | None = None
    events: dict[str, Components] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    write_id: str | None = None


def read_ical(text: str, source_id: UUID, zone: str) -> CalendarFile:
    """Read a file. ``zone`` is used for times whose zone is unknown. Raises InvalidArguments."""
    if len(text) > MAX_BYTES:
        raise InvalidArguments("the calendar file is too large", hint="import it in parts")
    try:
        calendar = Calendar.from_ical(text)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InvalidArguments(
            f"this is no calendar file: {error}", hint="expected iCalendar"
        ) from None
    method = str(calendar.get("METHOD", "")).upper() or None
    file = CalendarFile(method, write_id=str(calendar.get(WRITE_ID, "")) or None)
    components = calendar.walk("VEVENT")
    if len(components) > MAX_EVENTS:
        raise InvalidArguments(
            f"the file has more than {MAX_EVENTS} events", hint="import it in parts"
        )
    for component in sorted(components, key=lambda one: "RECURRENCE-ID" in one):
        try:
            _add(component, file, source_id, zone)
        except (
            ButlersError,
            ValueError,
            TypeError,
            AttributeError,
            OverflowError,
            KeyError,
        ) as error:
            file.problems.append(f"{str(component.get('SUMMARY', '?'))[:80]}: {error}")
    return file


def write_ical(components: Components, base: str | None = None, write_id: str | None = None) -> str:
    """Return the file of one event or series; properties of ``base`` that we do not know are kept."""
    calendar = Calendar.from_ical(base) if base else Calendar()
    known = {_key(one): one for one in calendar.walk("VEVENT")}
    calendar.subcomponents = [
        one for one in calendar.subcomponents if one.name not in ("VEVENT", "VTIMEZONE")
    ]
    calendar.pop(WRITE_ID, None)
    if base is None:
        calendar.add("prodid", "-//Butlers//Calendar//EN")
        calendar.add("version", "2.0")
    if write_id is not None:
        calendar.add(WRITE_ID, write_id)
    for recurs_at, event in in_order(components):
        calendar.add_component(_component(event, known.get(recurs_at) or Event()))
    calendar.add_missing_timezones()
    return str(calendar.to_ical().decode())


def in_order(components: Components) -> list[tuple[datetime | None, CalendarEvent]]:
    """Return the event or series first, then the occurrences that it replaces."""
    changed = sorted(
        ((key, event) for key, event in components.items() if key is not None),
        key=lambda one: one[0],
    )
    return [*((key, event) for key, event in components.items() if key is None), *changed]


# -- reading ------------------------------------------------------------------------------------------


def _add(component: Any, file: CalendarFile, source_id: UUID, zone: str) -> None:
    uid = str(component.get("UID", "")).strip()[:500]
    uid = uid or sha256(component.to_ical()).hexdigest()
    known = file.events.setdefault(uid, {})
    try:
        event = _event(component, uid, source_id, zone, file.problems)
        master = known.get(None)
        if "RECURRENCE-ID" in component and master is not None:
            at = _local(component["RECURRENCE-ID"], master.zone, zone)
            event = replace(event, series_id=master.id, recurs_at=at, rule=None, extra_dates=())
    finally:
        if not known:
            file.events.pop(uid, None)
    file.events.setdefault(uid, known)[event.recurs_at] = event


def _event(
    component: Any, uid: str, source_id: UUID, zone: str, problems: list[str]
) -> CalendarEvent:
    times = _times(component, zone)
    rule = _rule(component, problems)
    return CalendarEvent(
        id=uuid7(),
        source_id=source_id,
        uid=uid,
        title=_text(component, "SUMMARY", MAX_TITLE) or "(no title)",
        start_local=times.start,
        end_local=times.end,
        zone=times.zone,
        all_day=times.all_day,
        description=_text(component, "DESCRIPTION", MAX_TEXT),
        location=_text(component, "LOCATION", MAX_TITLE),
        rule=rule,
        extra_dates=_dates(component, "RDATE", times.zone, zone),
        except_dates=_dates(component, "EXDATE", times.zone, zone),
        status=_STATUSES.get(str(component.get("STATUS", "")).upper(), "confirmed"),
        visibility=_CLASSES.get(str(component.get("CLASS", "")).upper(), "default"),
        busy=str(component.get("TRANSP", "OPAQUE")).upper() != "TRANSPARENT" and not times.all_day,
        organizer=_address(component.get("ORGANIZER")),
        attendees=_attendees(component),
        notify_minutes=_alarm(component),
        sequence=int(component.get("SEQUENCE", 0)),
    )


def _times(component: Any, zone: str) -> EventTimes:
    begin = component["DTSTART"]
    all_day = not isinstance(begin.dt, datetime)
    place = None if all_day else _zone_of(begin, zone)
    start = _local(begin, place, zone)
    if "DTEND" in component:
        end = _local(component["DTEND"], place, zone)
    elif "DURATION" in component:
        end = start + component["DURATION"].dt
    else:
        end = start + timedelta(days=1) if all_day else start
    if all_day and end <= start:
        end = start + timedelta(days=1)
    return checked(EventTimes(start, max(start, end), place, all_day))


def _zone_of(value: Any, zone: str) -> str | None:
    """Return the zone of a time; None for a floating one. An unknown zone is taken for the owner's."""
    named = value.params.get("TZID")
    if named is not None:
        return known_zone(str(named)) or zone
    return "UTC" if value.dt.tzinfo is not None else None


def _local(value: Any, place: str | None, zone: str) -> datetime:
    """Return a time as local time of an event's zone."""
    moment: date | datetime = value.dt
    if not isinstance(moment, datetime):
        return datetime.combine(moment, time())
    named = value.params.get("TZID") if hasattr(value, "params") else None
    wall = moment.replace(tzinfo=None)
    if named is None and moment.tzinfo is None:
        return wall
    # A file may define a zone of its own under a name that we know: the name counts.
    own = (known_zone(str(named)) or zone) if named is not None else "UTC"
    if own == place or place is None:
        return wall
    return wall.replace(tzinfo=ZoneInfo(own)).astimezone(ZoneInfo(place)).replace(tzinfo=None)


def _rule(component: Any, problems: list[str]) -> str | None:
    found = component.get("RRULE")
    if found is None:
        return None
    first = found[0] if isinstance(found, list) else found
    text = str(first.to_ical().decode())
    try:
        read_rule(text)
    except InvalidArguments as error:
        problems.append(f"{str(component.get('SUMMARY', '?'))[:80]}: {error.message}")
        return None
    return text


def _dates(component: Any, name: str, place: str | None, zone: str) -> tuple[datetime, ...]:
    found = component.get(name, [])
    lists = found if isinstance(found, list) else [found]
    dates: set[datetime] = set()
    for one in lists:
        for value in one.dts[:MAX_DATES]:
            moment = value.dt[0] if isinstance(value.dt, tuple) else value.dt
            dates.add(_local(_Dated(moment, one.params), place, zone))
    return tuple(sorted(dates)[:MAX_DATES])


@dataclass(frozen=True, slots=True)
class _Dated:
    """One date of a list, with the parameters of the list."""

    dt: date | datetime
    params: Any


def _text(component: Any, name: str, longest: int) -> str | None:
    found = component.get(name)
    if found is None:
        return None
    text = str(found[0] if isinstance(found, list) else found).replace("\0", "")[:longest].strip()
    return text or None


def _address(value: Any) -> str | None:
    return str(value).casefold().removeprefix("mailto:")[:254] if value is not None else None


def _attendees(component: Any) -> tuple[dict[str, str], ...]:
    found = component.get("ATTENDEE", [])
    listed = found if isinstance(found, list) else [found]
    answers = []
    for one in listed[:200]:
        answer = str(one.params.get("PARTSTAT", "")).casefold()
        status = answer if answer in _ANSWERS else "needs-action"
        answers.append({"email": _address(one) or "", "status": status})
    return tuple(answers)


def _alarm(component: Any) -> int | None:
    for alarm in component.walk("VALARM"):
        trigger = getattr(alarm.get("TRIGGER"), "dt", None)
        if isinstance(trigger, timedelta) and trigger <= timedelta(0):
            return min(int(-trigger.total_seconds() // 60), 40_320)
    return None


def _key(component: Any) -> datetime | None:
    """Return the local time that a component replaces, in its own zone."""
    found = component.get("RECURRENCE-ID")
    if found is None:
        return None
    moment = found.dt
    return (
        moment.replace(tzinfo=None)
        if isinstance(moment, datetime)
        else datetime.combine(moment, time())
    )


# -- writing ------------------------------------------------------------------------------------------


def _component(event: CalendarEvent, component: Any) -> Any:
    """Write the event's values into a component."""
    values: dict[str, Any] = {
        "UID": event.uid,
        "DTSTAMP": datetime.now(UTC).replace(microsecond=0),
        "SUMMARY": event.title,
        "DTSTART": _moment(event.start_local, event),
        "DTEND": _moment(event.end_local, event),
        "DESCRIPTION": event.description,
        "LOCATION": event.location,
        "RRULE": vRecur.from_ical(event.rule) if event.rule else None,
        "STATUS": event.status.upper(),
        "SEQUENCE": event.sequence,
        "CLASS": event.visibility.upper() if event.visibility != "default" else None,
        "TRANSP": None if event.busy or event.all_day else "TRANSPARENT",
        "RECURRENCE-ID": _moment(event.recurs_at, event) if event.recurs_at else None,
        "ORGANIZER": _calendar_address(event.organizer) if event.organizer else None,
        "EXDATE": [_moment(one, event) for one in event.except_dates] or None,
        "RDATE": [_moment(one, event) for one in event.extra_dates] or None,
    }
    for name, value in values.items():
        component.pop(name, None)
        if value is not None:
            component.add(name.lower(), value)
    component.pop("DURATION", None)
    _write_attendees(event, component)
    _write_alarm(event, component)
    return component


def _write_attendees(event: CalendarEvent, component: Any) -> None:
    found = component.pop("ATTENDEE", [])
    known = {_address(one): one for one in (found if isinstance(found, list) else [found])}
    for one in event.attendees:
        address = known.get(one["email"]) or _calendar_address(one["email"])
        address.params["PARTSTAT"] = one["status"].upper()
        component.add("attendee", address, encode=0)


def _write_alarm(event: CalendarEvent, component: Any) -> None:
    if _alarm(component) == event.notify_minutes:
        return
    component.subcomponents = [one for one in component.subcomponents if one.name != "VALARM"]
    if event.notify_minutes is not None:
        alarm = Alarm()
        alarm.add("action", "DISPLAY")
        alarm.add("description", event.title)
        alarm.add("trigger", timedelta(minutes=-event.notify_minutes))
        component.add_component(alarm)


def _moment(local: datetime, event: CalendarEvent) -> date | datetime:
    if event.all_day:
        return local.date()
    if event.zone is None:
        return local
    return local.replace(tzinfo=UTC if event.zone == "UTC" else ZoneInfo(event.zone))


def _calendar_address(email: str) -> vCalAddress:
    return vCalAddress(f"mailto:{email}")
