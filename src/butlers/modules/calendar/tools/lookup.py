"""The event that a tool's argument means, and the form of events in answers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.errors import InvalidArguments, NotFound
from butlers.modules.calendar import store
from butlers.modules.calendar.model import EDGE, OCCURRENCE, CalendarEvent, Occurrence
from butlers.modules.calendar.store import CalendarSource
from butlers.modules.calendar.words import occurrence_text, occurrence_time
from butlers.modules.calendar.zones import local_of
from butlers.tools.context import CallContext
from butlers.tools.records import shown_source

EventWords = Annotated[
    str,
    Field(
        min_length=1, max_length=300, description='id, words of the title, or "it": the last one'
    ),
]
IT = frozenset(("it", "that", "this", "es", "das", "ihn", "sie", "den", "den termin", "the event"))
AHEAD = timedelta(days=366 * 5)


async def find_occurrence(ctx: CallContext, words: str) -> Occurrence:
    """Return the occurrence that is meant. Raises if the words fit none, or several events."""
    plain = words.strip()
    if plain.casefold() in IT:
        event = await store.last_changed(ctx.connection)
        if event is None:
            raise NotFound(
                "the last change was not about an event", hint="name the event by its title"
            )
        return await _next(ctx, event)
    event_id, _, stamp = plain.partition("@")
    try:
        known = UUID(event_id)
    except ValueError:
        return await _next(ctx, await _titled(ctx, plain))
    event = await store.find_event(ctx.connection, known)
    return await _at(ctx, event, stamp) if stamp else await _next(ctx, event)


async def _titled(ctx: CallContext, words: str) -> CalendarEvent:
    found = await store.search_events(ctx.connection, words, ctx.now)
    # The changed occurrence of a series has its title: the series is meant.
    found = [event for event in found if event.series_id is None] or found
    exact = [event for event in found if event.title.casefold() == words.casefold()]
    chosen = exact or found
    if not chosen:
        raise NotFound(
            f"there is no coming event {words!r}", hint="calendar_list_events shows the events"
        )
    if len(chosen) > 1:
        today = ctx.now.astimezone(ctx.zone).date()
        texts = [
            f"{event.title} ({occurrence_text(event.single(), ctx.zone, today)})"
            for event in chosen[:5]
        ]
        raise InvalidArguments(
            f"{words!r} fits several events: {'; '.join(texts)}", hint="say it more exactly"
        )
    return chosen[0]


async def _next(ctx: CallContext, event: CalendarEvent) -> Occurrence:
    """Return the event, or of a series the occurrence that is on or comes next, else the last one."""
    if not event.recurring:
        return event.single()
    now = local_of(ctx.now, event.zone or str(ctx.zone))
    replaced = {one.recurs_at: one for one in await store.overrides_of(ctx.connection, event.id)}
    starts = event.starts_between(now - event.duration, now + AHEAD)
    for start in starts:
        if start + event.duration > now:
            return replaced[start].single() if start in replaced else event.occurrence(start)
    past = event.starts_between(event.start_local, now)
    return event.occurrence(past[-1] if past else event.start_local)


async def _at(ctx: CallContext, event: CalendarEvent, stamp: str) -> Occurrence:
    try:
        start = datetime.strptime(stamp, OCCURRENCE)  # noqa: DTZ007  (local to the event)
    except ValueError:
        raise InvalidArguments(f"{stamp[:40]!r} is no occurrence", hint="use a listed id") from None
    override = await store.find_override(ctx.connection, event.id, start)
    if override is not None:
        return override.single()
    if start not in event.starts_between(start - EDGE, start + EDGE):
        raise NotFound(f"{event.title} does not take place then", hint="use a listed id")
    return event.occurrence(start)


def shown(ctx: CallContext, one: Occurrence, sources: list[CalendarSource]) -> dict[str, Any]:
    """Return an occurrence as tools answer it, without empty fields."""
    event, today = one.event, ctx.now.astimezone(ctx.zone).date()
    name = next((source.name for source in sources if source.id == event.source_id), None)
    fields = {
        "id": one.id,
        "title": event.title,
        "when": occurrence_text(one, ctx.zone, today),
        "start": _iso(ctx, one, one.start),
        "end": _iso(ctx, one, one.end),
        "all_day": event.all_day or None,
        "timezone": event.zone if event.zone != str(ctx.zone) else None,
        "calendar": name if name != store.LOCAL else None,
        "location": event.location,
        "description": event.description,
        "repeats": event.rule or (event.series_id and "changed occurrence of a series"),
        "attendees": [dict(one) for one in event.attendees] or None,
        "organizer": event.organizer,
        "status": event.status if event.status != "confirmed" else None,
        "visibility": event.visibility if event.visibility != "default" else None,
        "notify_minutes": event.notify_minutes,
        "color_id": event.color_id,
    }
    kept = {key: value for key, value in fields.items() if value is not None}
    return {**kept, **shown_source(ctx, {"trust": event.trust, "sender": event.sender})}


def line(ctx: CallContext, one: Occurrence, *, with_day: bool) -> str:
    """Return one line of a list: time, title and place."""
    today = ctx.now.astimezone(ctx.zone).date()
    time = occurrence_text(one, ctx.zone, today) if with_day else occurrence_time(one, ctx.zone)
    place = f" ({one.event.location})" if one.event.location else ""
    return f"- {time}: {one.event.title}{place}"


def _iso(ctx: CallContext, one: Occurrence, local: datetime) -> str:
    if one.event.all_day:
        return f"{local.date()}"
    if one.event.zone is None:
        return local.isoformat()
    instant = one.starts_at if local == one.start else one.ends_at
    return instant.astimezone(ctx.zone).isoformat()
