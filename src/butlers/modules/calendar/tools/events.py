"""Tools that list, create, change and cancel events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import Field

from butlers.domain.caller import SESSIONS, CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NeedsApproval, NotAllowed, StateConflict
from butlers.modules.calendar import store
from butlers.modules.calendar.config import CalendarConfig, ConflictPolicy
from butlers.modules.calendar.editing import SeriesPart, cancel_occurrence, change_occurrence
from butlers.modules.calendar.model import CalendarEvent, Occurrence, Window
from butlers.modules.calendar.rules import expand, read_rule
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.sync.worker import request_sync
from butlers.modules.calendar.timetable import (
    WorkingTime,
    busy_spans,
    free_spans,
    overlapping,
)
from butlers.modules.calendar.tools.butler_events import butler_events_in
from butlers.modules.calendar.tools.lookup import EventWords, find_occurrence, line, shown
from butlers.modules.calendar.words import (
    EventTimes,
    checked,
    local_end,
    moved_start,
    occurrence_text,
    read_rule_words,
    read_times,
    read_window,
)
from butlers.skills.reflexes.times import format_date
from butlers.tools.context import CallContext
from butlers.tools.dates import When, read_when
from butlers.tools.declaration import Effect, tool

Title = Annotated[str, Field(min_length=1, max_length=300)]
Text = Annotated[str, Field(max_length=10_000)]
Short = Annotated[str, Field(max_length=300)]
Calendar = Annotated[str, Field(max_length=100, description="name of a calendar")]
Attendee = Annotated[str, Field(min_length=3, max_length=254, description="email address")]
Attendees = Annotated[list[Attendee], Field(max_length=200)]
Repeat = Annotated[
    str, Field(max_length=300, description='e.g. "every monday", or an RRULE; "none" ends it')
]
WindowText = Annotated[
    str, Field(max_length=80, description='e.g. "tomorrow", "friday afternoon", "next week"')
]
CHECKED_AHEAD = timedelta(days=90)  # how far a new series is compared with other events
LISTED = timedelta(days=7)


@tool(callers=SESSIONS, effect=Effect.READ, shared=True)
async def calendar_list_events(
    ctx: CallContext,
    when: WindowText | None = None,
    start_at: When | None = None,
    end_at: When | None = None,
    calendar_id: Calendar | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> dict[str, Any]:
    """List the events of a time (default: the next seven days) in all calendars, or in one."""
    window = _window(ctx, when, start_at, end_at)
    sources = await store.list_sources(ctx.connection)
    chosen = (await store.find_source(ctx.connection, calendar_id)).id if calendar_id else None
    found = await store.occurrences_in(ctx.connection, window, source_id=chosen)
    own = [] if chosen else await butler_events_in(ctx, window)
    found = sorted([*found, *own], key=lambda one: (one.instants(ctx.zone), one.event.title))
    several_days = window.end - window.start > timedelta(hours=26)
    lines = [line(ctx, one, with_day=several_days) for one in found[:limit]]
    return {
        "events": [
            shown(ctx, one, sources) | ({"kind": "butler"} if one in own else {})
            for one in found[:limit]
        ],
        "more": max(0, len(found) - limit),
        "text": "\n".join(lines) or "Nothing is planned.",
    }


@tool(callers=SESSIONS, effect=Effect.READ)
async def calendar_get_event(ctx: CallContext, event: EventWords) -> dict[str, Any]:
    """Show one event with all its details."""
    one = await find_occurrence(ctx, event)
    return shown(ctx, one, await store.list_sources(ctx.connection))


@tool(callers=SESSIONS, effect=Effect.READ, shared=True)
async def calendar_free_busy(ctx: CallContext, when: WindowText) -> dict[str, Any]:
    """Show the busy times of a time, and the free times inside working hours."""
    window = read_window(ctx, when)
    found = await store.occurrences_in(ctx.connection, window)
    busy = busy_spans(found, ctx.zone)
    taking = [one for one in found if one.event.busy]
    first, last = (one.astimezone(ctx.zone).date() for one in (window.start, window.end))
    hours = [
        (max(start, window.start), min(end, window.end))
        for start, end in _working(ctx).spans(first, last)
        if start < window.end and end > window.start
    ]
    free = free_spans(busy, hours)
    names = ", ".join(f"{one.event.title} ({_text(ctx, one)})" for one in taking[:5])
    if taking:
        shown_free = f" Free: {_spans(ctx, free)}." if free else ""
        text = f"Not entirely: {names}.{shown_free}"
    else:
        text = "Yes, nothing is planned."
    return {
        "busy": [{"start": one[0].isoformat(), "end": one[1].isoformat()} for one in busy],
        "free": [{"start": one[0].isoformat(), "end": one[1].isoformat()} for one in free],
        "text": text,
    }


@tool(callers=SESSIONS)
async def calendar_create_event(
    ctx: CallContext,
    title: Title,
    start_at: When,
    end_at: When | None = None,
    all_day: bool | None = None,
    timezone: Annotated[str, Field(max_length=100, description='IANA, or "floating"')]
    | None = None,
    description: Text | None = None,
    location: Short | None = None,
    attendees: Attendees | None = None,
    recurrence_rule: Repeat | None = None,
    notification: Annotated[int, Field(ge=0, le=40_320, description="minutes before")]
    | None = None,
    status: Literal["confirmed", "tentative"] = "confirmed",
    visibility: Literal["default", "public", "private"] = "default",
    color_id: Annotated[str, Field(max_length=20)] | None = None,
    calendar_id: Calendar | None = None,
    conflict_policy: ConflictPolicy | None = None,
    request_id: UUID | None = None,
) -> dict[str, Any]:
    """Create an event. A begin without a time of day makes an all-day event.

    If it overlaps another event, nothing is created and free times are proposed, unless
    conflict_policy="allow_overlap".
    """
    config = CalendarConfig.of(ctx)
    source = await store.find_source(ctx.connection, calendar_id or config.provider)
    check_writable(ctx, source, bool(attendees))
    times = read_times(
        ctx, start_at, end_at, all_day=all_day, timezone=timezone, minutes=config.default_minutes
    )
    rule, times = _repetition(recurrence_rule, times)
    event = CalendarEvent(
        id=uuid7(),
        source_id=source.id,
        uid=str(request_id or uuid7()),
        title=title,
        start_local=times.start,
        end_local=times.end,
        zone=times.zone,
        all_day=times.all_day,
        description=description,
        location=location,
        rule=rule,
        status=status,
        visibility=visibility,
        busy=not times.all_day,
        color_id=color_id,
        attendees=tuple(invited(one) for one in attendees or ()),
        notify_minutes=notification,
    )
    if request_id and (known := await store.events_of_uid(ctx.connection, source.id, event.uid)):
        return await _answer(ctx, known[0].single(), "Already there")
    clash = await _clash(ctx, event, conflict_policy)
    if clash is not None:
        return clash
    await store.save_event(ctx.connection, event)
    await stored(ctx, source)
    return await _answer(ctx, event.single(), "Added")


@tool(callers=SESSIONS)
async def calendar_update_event(
    ctx: CallContext,
    event: EventWords,
    title: Title | None = None,
    start_at: When | None = None,
    end_at: When | None = None,
    timezone: Annotated[str, Field(max_length=100)] | None = None,
    description: Text | None = None,
    location: Short | None = None,
    recurrence_rule: Repeat | None = None,
    notification: Annotated[int, Field(ge=0, le=40_320)] | None = None,
    status: Literal["confirmed", "tentative"] | None = None,
    visibility: Literal["default", "public", "private"] | None = None,
    color_id: Annotated[str, Field(max_length=20)] | None = None,
    scope: SeriesPart = SeriesPart.THIS,
    conflict_policy: ConflictPolicy | None = None,
) -> dict[str, Any]:
    """Change an event; omitted fields stay. A new begin keeps the length; "13:00" keeps the day.

    scope, for one of a series: this one, this and the following, or all.
    """
    chosen = await find_occurrence(ctx, event)
    source = await store.source_of(ctx.connection, chosen.event)
    check_writable(ctx, source, bool(chosen.event.attendees))
    given = {
        "title": title,
        "description": description,
        "location": location,
        "notify_minutes": notification,
        "status": status,
        "visibility": visibility,
        "color_id": color_id,
    }
    edit = _Edit(
        ctx,
        {name: value for name, value in given.items() if value is not None},
        start_at,
        end_at,
        timezone,
        recurrence_rule,
    )
    if start_at or end_at or timezone:
        clash = await _clash(
            ctx, edit.apply(chosen.moved(chosen.start, chosen.end - chosen.start)), conflict_policy
        )
        if clash is not None:
            return clash
    changed = await change_occurrence(ctx.connection, chosen, scope, edit.apply)
    await stored(ctx, source)
    start = edit.apply(chosen.moved(chosen.start, chosen.end - chosen.start)).start_local
    return await _answer(ctx, changed.occurrence(start), "Changed")


@tool(callers=SESSIONS)
async def calendar_delete_event(
    ctx: CallContext, event: EventWords, scope: SeriesPart = SeriesPart.THIS
) -> dict[str, Any]:
    """Cancel an event; of a series this one, this and the following, or all. undo brings it back."""
    chosen = await find_occurrence(ctx, event)
    source = await store.source_of(ctx.connection, chosen.event)
    check_writable(ctx, source, bool(chosen.event.attendees))
    answer = await _answer(ctx, chosen, "Canceled")
    await cancel_occurrence(ctx.connection, chosen, scope)
    await stored(ctx, source)
    return answer


@dataclass(frozen=True, slots=True)
class _Edit:
    """Requested values of an event, applied to each row that changes."""

    ctx: CallContext
    fields: dict[str, Any]
    start_at: str | None
    end_at: str | None
    timezone: str | None
    repeat: str | None

    def apply(self, event: CalendarEvent) -> CalendarEvent:
        zone = (
            self.timezone
            and read_times(
                self.ctx, "now", None, all_day=False, timezone=self.timezone, minutes=1
            ).zone
        )
        start, end = event.start_local, event.end_local
        if self.start_at is not None:
            start = moved_start(self.ctx, self.start_at, start, zone or event.zone)
            end = start + event.duration
        if self.end_at is not None:
            where = ZoneInfo(zone or event.zone or str(self.ctx.zone))
            end = local_end(self.ctx, self.end_at, start, where)
        times = checked(EventTimes(start, end, zone or event.zone, event.all_day))
        rule = event.rule
        if self.repeat is not None:
            rule, times = _repetition(self.repeat, times)
        return replace(
            event,
            start_local=times.start,
            end_local=times.end,
            zone=times.zone,
            rule=rule,
            **self.fields,
        )


def invited(address: str) -> dict[str, str]:
    """Return an attendee who has not answered yet."""
    if "@" not in address.strip("@") or any(char.isspace() for char in address):
        raise InvalidArguments(
            f"{address!r} is no email address", hint="write one such as a@b.example"
        )
    return {"email": address.casefold(), "status": "needs-action"}


def _repetition(words: str | None, times: EventTimes) -> tuple[str | None, EventTimes]:
    """Return the rule of the words, and the times of its first occurrence."""
    if words is None or words.strip().casefold() == "none":
        return None, times
    rule = read_rule_words(words, times.start.date())
    read = read_rule(rule)
    first = next(
        expand(read, times.start, times.start, times.start + timedelta(days=366 * 10)), None
    )
    if first is None:
        raise InvalidArguments("the repetition has no date", hint="check the rule")
    return rule, replace(times, start=first, end=first + (times.end - times.start))


async def _clash(
    ctx: CallContext, event: CalendarEvent, policy: ConflictPolicy | None
) -> dict[str, Any] | None:
    """Return the answer for an event that overlaps others, or None if it may be stored."""
    chosen = policy or CalendarConfig.of(ctx).conflicts.policy
    if chosen is ConflictPolicy.ALLOW_OVERLAP or not event.busy:
        return None
    found = await _conflicts(ctx, event)
    if not found:
        return None
    names = "; ".join(f"{one.event.title} ({_text(ctx, one)})" for one in found[:5])
    wanted = _text(ctx, event.single())
    if chosen is ConflictPolicy.FAIL:
        raise StateConflict(
            f"{event.title} overlaps {names}", hint='use conflict_policy="allow_overlap"'
        )
    spans = await _proposals(ctx, event)
    free = f" Free: {_spans(ctx, spans)}." if spans else ""
    sources = await store.list_sources(ctx.connection)
    return {
        "status": "conflict",
        "conflicts": [shown(ctx, one, sources) for one in found[:10]],
        "suggestions": [
            {
                "start": start.astimezone(ctx.zone).isoformat(),
                "end": end.astimezone(ctx.zone).isoformat(),
                "when": _spans(ctx, [(start, end)]),
            }
            for start, end in spans
        ],
        "text": f"Not stored: {event.title}, {wanted}, overlaps {names}.{free}",
    }


async def _conflicts(ctx: CallContext, event: CalendarEvent) -> list[Occurrence]:
    own = [event.single()]
    if event.recurring:
        last = event.start_local + CHECKED_AHEAD
        own = [event.occurrence(one) for one in event.starts_between(event.start_local, last)]
    spans = [one.instants(ctx.zone) for one in own]
    window = Window(spans[0][0], max(end for _, end in spans), ctx.zone)
    related = {event.id, event.series_id}
    others = [
        one
        for one in await store.occurrences_in(ctx.connection, window)
        if one.event.id not in related and (one.event.series_id or one.event.id) not in related
    ]
    found = {one.id: one for span in spans for one in overlapping(*span, others, ctx.zone)}
    return list(found.values())


async def _proposals(ctx: CallContext, event: CalendarEvent) -> list[tuple[datetime, datetime]]:
    wanted = event.single().instants(ctx.zone)
    around = timedelta(days=15)
    window = Window(wanted[0] - around, wanted[1] + around, ctx.zone)
    others = await store.occurrences_in(ctx.connection, window)
    busy = busy_spans((one for one in others if one.event.id != event.id), ctx.zone)
    return _working(ctx).proposals(wanted, busy, ctx.now)


def _working(ctx: CallContext) -> WorkingTime:
    return WorkingTime(CalendarConfig.of(ctx).working_hours, ctx.zone)


def check_writable(ctx: CallContext, source: CalendarSource, others: bool) -> None:
    """Raise NotAllowed for a calendar that is only read, NeedsApproval if other people will see it."""
    if not source.writable:
        raise NotAllowed(
            f"the calendar {source.name} can only be read", hint="use another calendar_id"
        )
    sends = source.shared or (others and source.kind != store.LOCAL)
    if not sends or ctx.approved or ctx.caller.kind is CallerKind.OWNER:
        return
    action = "change a shared calendar" if source.shared else "invite people to an event"
    raise NeedsApproval(
        f"a session may not {action} by itself",
        action=action,
        why=f"other people see the calendar {source.name}",
        hint="the owner decides it",
    )


async def stored(ctx: CallContext, source: CalendarSource) -> None:
    """Do what follows a change: project series, and write it to the calendar's server."""
    await store.project_series(ctx.connection, ctx.now)
    if source.kind != store.LOCAL:
        await request_sync(ctx.connection, source.name)


def _window(ctx: CallContext, when: str | None, start_at: str | None, end_at: str | None) -> Window:
    if when is not None:
        return read_window(ctx, when)
    if start_at is None and end_at is None:
        return Window(ctx.now, ctx.now + LISTED, ctx.zone)
    start = read_when(ctx, start_at, prefer="future") if start_at else ctx.now
    end = read_when(ctx, end_at, prefer="future") if end_at else start + LISTED
    if end <= start:
        raise InvalidArguments("end_at is before start_at", hint="give a later end_at")
    return Window(start, end, ctx.zone)


async def _answer(ctx: CallContext, one: Occurrence, verb: str) -> dict[str, Any]:
    told = shown(ctx, one, await store.list_sources(ctx.connection))
    return {**told, "text": f"{verb}: {one.event.title}, {told['when']}."}


def _text(ctx: CallContext, one: Occurrence) -> str:
    return occurrence_text(one, ctx.zone, ctx.now.astimezone(ctx.zone).date())


def _spans(ctx: CallContext, spans: Sequence[tuple[datetime, datetime]]) -> str:
    """Return times in words, the day named once for each run of the same day."""
    today, texts, named = ctx.now.astimezone(ctx.zone).date(), [], None
    for start, end in spans[:10]:
        local, until = start.astimezone(ctx.zone), end.astimezone(ctx.zone)
        day = "" if local.date() == named else f"{format_date(local.date(), today)} "
        named = local.date()
        texts.append(f"{day}{local:%H:%M}–{until:%H:%M}")
    return ", ".join(texts)


TOOLS = (
    calendar_list_events,
    calendar_get_event,
    calendar_free_busy,
    calendar_create_event,
    calendar_update_event,
    calendar_delete_event,
)
