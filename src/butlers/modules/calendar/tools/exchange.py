"""Tools for attendees, invitations, calendar files and synchronization."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.domain.caller import SESSIONS
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NotAllowed, NotFound
from butlers.modules.calendar import store
from butlers.modules.calendar.config import CalendarConfig
from butlers.modules.calendar.editing import SeriesPart, change_occurrence
from butlers.modules.calendar.ical import CalendarFile, Components, in_order, read_ical
from butlers.modules.calendar.model import CalendarEvent
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.sync.store import sync_states
from butlers.modules.calendar.sync.worker import request_sync
from butlers.modules.calendar.tools.events import (
    Attendees,
    Calendar,
    check_writable,
    invited,
    stored,
)
from butlers.modules.calendar.tools.lookup import EventWords, find_occurrence, shown
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool
from butlers.tools.records import begin_import

FileText = Annotated[str, Field(max_length=1_000_000, description="text of an .ics file")]
Answer = Literal["accept", "decline", "tentative"]
ANSWERS = {"accept": "accepted", "decline": "declined", "tentative": "tentative"}


@tool(callers=SESSIONS)
async def calendar_add_attendees(
    ctx: CallContext, event: EventWords, attendees: Attendees, scope: SeriesPart = SeriesPart.ALL
) -> dict[str, Any]:
    """Add people to an event. In a calendar on a server they are invited, which waits for approval."""
    added = [invited(one) for one in attendees]

    def change(row: CalendarEvent) -> CalendarEvent:
        known = {one["email"] for one in row.attendees}
        new = [one for one in added if one["email"] not in known]
        return replace(row, attendees=(*row.attendees, *new))

    return await _change_attendees(ctx, event, scope, change)


@tool(callers=SESSIONS)
async def calendar_remove_attendees(
    ctx: CallContext, event: EventWords, attendees: Attendees, scope: SeriesPart = SeriesPart.ALL
) -> dict[str, Any]:
    """Remove people from an event."""
    gone = {one.casefold() for one in attendees}

    def change(row: CalendarEvent) -> CalendarEvent:
        return replace(row, attendees=tuple(o for o in row.attendees if o["email"] not in gone))

    return await _change_attendees(ctx, event, scope, change)


@tool(callers=SESSIONS)
async def calendar_import(
    ctx: CallContext, ics: FileText, calendar_id: Calendar = store.LOCAL
) -> dict[str, Any]:
    """Store the events of an .ics file. Events that are there already are replaced; undo removes all."""
    source = await store.find_source(ctx.connection, calendar_id)
    check_writable(ctx, source, others=False)
    file = read_ical(ics, source.id, str(ctx.zone))
    await begin_import(ctx, ctx.caller.request_id or uuid7(), source="a calendar file")
    for uid, components in file.events.items():
        await _store(ctx, source, uid, components)
    await stored(ctx, source)
    return {
        "events": len(file.events),
        "problems": file.problems[:20],
        "text": f"Stored {len(file.events)} events."
        + (f" {len(file.problems)} could not be read." if file.problems else ""),
    }


@tool(callers=SESSIONS)
async def calendar_invitation(
    ctx: CallContext,
    ics: FileText,
    answer: Answer | None = None,
    calendar_id: Calendar = store.LOCAL,
) -> dict[str, Any]:
    """Take an invitation, update or cancellation that came as an .ics file, and note the owner's answer.

    Only the organizer may change or cancel an event: the sender of the message is compared.
    """
    source = await store.find_source(ctx.connection, calendar_id)
    check_writable(ctx, source, others=False)
    file = read_ical(ics, source.id, str(ctx.zone))
    uid, components = _only_event(file)
    known = await store.events_of_uid(ctx.connection, source.id, uid)
    _check_organizer(ctx, components, known)
    if file.method == "CANCEL":
        return await _cancel(ctx, source, uid, components, known)
    newest = max((one.sequence for one in known), default=-1)
    if max(one.sequence for one in components.values()) < newest:
        raise InvalidArguments("this invitation is older than the stored event", hint="ignore it")
    answered = {key: _answered(ctx, one, answer, known) for key, one in components.items()}
    await _store(ctx, source, uid, answered)
    await stored(ctx, source)
    rows = await store.events_of_uid(ctx.connection, source.id, uid)
    told = shown(ctx, rows[0].single(), await store.list_sources(ctx.connection))
    verb = "Updated" if known else "Added"
    return {**told, "text": f"{verb}: {rows[0].title}, {told['when']}."}


@tool(callers=SESSIONS, effect=Effect.READ)
async def calendar_sync_status(ctx: CallContext) -> dict[str, Any]:
    """Show each calendar: last synchronization, number of events, changes to be written, and errors."""
    states = await sync_states(ctx.connection)
    return {
        "calendars": [
            {
                key: value.isoformat() if hasattr(value, "isoformat") else value
                for key, value in one.items()
            }
            for one in states
        ]
    }


@tool(callers=SESSIONS)
async def calendar_force_sync(
    ctx: CallContext, calendar_id: Calendar | None = None, full: bool = False
) -> dict[str, Any]:
    """Synchronize all calendars, or one, now. full compares every event."""
    sources = await store.list_sources(ctx.connection)
    if calendar_id:
        sources = [await store.find_source(ctx.connection, calendar_id)]
    remote = [source.name for source in sources if source.kind != store.LOCAL]
    if not remote:
        raise NotFound(
            "no calendar on a server is connected", hint="butlers connect caldav connects one"
        )
    for name in remote:
        await request_sync(ctx.connection, name, full=full)
    return {"calendars": remote, "text": f"Synchronizing {', '.join(remote)}."}


async def _change_attendees(
    ctx: CallContext, words: str, scope: SeriesPart, change: Any
) -> dict[str, Any]:
    chosen = await find_occurrence(ctx, words)
    source = await store.source_of(ctx.connection, chosen.event)
    check_writable(ctx, source, others=True)
    changed = await change_occurrence(ctx.connection, chosen, scope, change)
    await stored(ctx, source)
    return shown(ctx, changed.occurrence(chosen.start), await store.list_sources(ctx.connection))


def _only_event(file: CalendarFile) -> tuple[str, Components]:
    if len(file.events) != 1:
        why = file.problems[0] if file.problems else f"it has {len(file.events)} events"
        raise InvalidArguments(
            f"this is no invitation: {why}", hint="calendar_import reads other files"
        )
    return next(iter(file.events.items()))


def _check_organizer(ctx: CallContext, components: Components, known: list[CalendarEvent]) -> None:
    """Raise NotAllowed unless the invitation comes from the organizer of the event."""
    named = {one.organizer for one in components.values()}
    organizers = {one.organizer for one in known} - {None}
    if known and not named & organizers:
        raise NotAllowed(
            "only the organizer may change this event",
            hint=f"its organizer is {', '.join(sorted(one for one in organizers if one)) or 'you'}",
        )
    request = ctx.request
    if request is None or request.is_owners:
        return
    if (request.source_sender_identity or "").casefold() not in named:
        raise NotAllowed(
            "the sender of this message is not the organizer of the event",
            hint="tell the owner, who can enter the event",
        )


async def _cancel(
    ctx: CallContext,
    source: CalendarSource,
    uid: str,
    components: Components,
    known: list[CalendarEvent],
) -> dict[str, Any]:
    if not known:
        return {"text": "The canceled event is not in the calendar."}
    rows = {one.recurs_at: one for one in known}
    for key, one in components.items():
        row = rows.get(key)
        if row is not None:
            await store.save_event(ctx.connection, replace(row, status="cancelled"))
        elif key is not None:
            master = rows[None]
            gone = replace(
                one, series_id=master.id, uid=uid, source_id=source.id, status="cancelled"
            )
            await store.save_event(ctx.connection, gone)
    await stored(ctx, source)
    return {"status": "cancelled", "text": f"Canceled by the organizer: {known[0].title}."}


def _answered(
    ctx: CallContext, event: CalendarEvent, answer: Answer | None, known: list[CalendarEvent]
) -> CalendarEvent:
    """Return the event with the owner's answer, this one or the one given before."""
    own = {one.casefold() for one in CalendarConfig.of(ctx).addresses}
    before = {one["email"]: one["status"] for row in known for one in row.attendees}
    people = tuple(
        {
            **one,
            "status": ANSWERS[answer] if answer else before.get(one["email"], one["status"]),
        }
        if one["email"] in own
        else one
        for one in event.attendees
    )
    status = "tentative" if answer in (None, "tentative") and not known else event.status
    return replace(event, attendees=people, status=status, busy=event.busy and answer != "decline")


async def _store(
    ctx: CallContext, source: CalendarSource, uid: str, components: Components
) -> None:
    """Store an event of a file over the rows that are there."""
    known = {
        one.recurs_at: one for one in await store.events_of_uid(ctx.connection, source.id, uid)
    }
    series = None
    for key, event in in_order(components):
        old = known.get(key)
        row = replace(event, id=old.id if old else event.id, series_id=series if key else None)
        if key is not None and series is None and None in known:
            row = replace(row, series_id=known[None].id)
        series = row.id if key is None else series
        await store.save_event(ctx.connection, row)


TOOLS = (
    calendar_add_attendees,
    calendar_remove_attendees,
    calendar_import,
    calendar_invitation,
    calendar_sync_status,
    calendar_force_sync,
)
