"""Changes of recurring events: one occurrence, one and all that follow, or the whole series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from butlers.db.database import Connection
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments
from butlers.modules.calendar import store
from butlers.modules.calendar.model import CalendarEvent, Occurrence
from butlers.modules.calendar.rules import WEEKDAYS, expand, read_rule
from butlers.modules.calendar.zones import instant_of

Change = Callable[[CalendarEvent], CalendarEvent]


class SeriesPart(StrEnum):
    THIS = "this"
    FOLLOWING = "following"
    ALL = "all"


async def change_occurrence(
    connection: Connection, chosen: Occurrence, scope: SeriesPart, change: Change
) -> CalendarEvent:
    """Apply a change to the occurrence, to it and all later ones, or to the series; return the new row."""
    event = chosen.event
    if not event.recurring and event.series_id is None:
        return await _save(
            connection, change(await store.find_event(connection, event.id, lock=True))
        )
    if scope is SeriesPart.THIS:
        return await _change_one(connection, chosen, change)
    series, start = await _series_of(connection, chosen)
    if scope is SeriesPart.FOLLOWING and start > series.start_local:
        return await _split(connection, series, start, change)
    return await _change_all(connection, series, start, change)


async def cancel_occurrence(connection: Connection, chosen: Occurrence, scope: SeriesPart) -> None:
    """Remove the occurrence, it and all later ones, or the series."""
    event = chosen.event
    if not event.recurring and event.series_id is None:
        await store.delete_events(connection, [event.id])
        return
    series, start = await _series_of(connection, chosen)
    if scope is SeriesPart.ALL or (scope is SeriesPart.FOLLOWING and start <= series.start_local):
        await store.delete_events(connection, [series.id])
        return
    if scope is SeriesPart.FOLLOWING:
        later = [o for o in await store.overrides_of(connection, series.id) if _at(o) >= start]
        await store.delete_events(connection, [one.id for one in later])
        await _save(connection, _ending_before(series, start))
        return
    if event.series_id is not None:
        await store.delete_events(connection, [event.id])
    kept = tuple(one for one in series.extra_dates if one != start)
    dates = tuple(sorted({*series.except_dates, start}))
    await _save(connection, replace(series, except_dates=dates, extra_dates=kept))


async def _series_of(connection: Connection, chosen: Occurrence) -> tuple[CalendarEvent, datetime]:
    """Return the series of an occurrence and its local start in the series."""
    event = chosen.event
    if event.series_id is None:
        return await store.find_event(connection, event.id, lock=True), chosen.start
    return await store.find_event(connection, event.series_id, lock=True), _at(event)


def _at(override: CalendarEvent) -> datetime:
    if override.recurs_at is None:
        raise ValueError("the event replaces no occurrence")
    return override.recurs_at


async def _change_one(connection: Connection, chosen: Occurrence, change: Change) -> CalendarEvent:
    event = chosen.event
    if event.series_id is not None:
        return await _save(connection, change(event))
    found = await store.find_override(connection, event.id, chosen.start)
    single = found or replace(
        event,
        id=uuid7(),
        series_id=event.id,
        recurs_at=chosen.start,
        start_local=chosen.start,
        end_local=chosen.end,
        rule=None,
        extra_dates=(),
        except_dates=(),
    )
    changed = change(single)
    if changed.rule is not None:
        raise InvalidArguments(
            "one occurrence cannot have its own repetition", hint='use scope="following" or "all"'
        )
    return await _save(connection, changed)


async def _change_all(
    connection: Connection, series: CalendarEvent, start: datetime, change: Change
) -> CalendarEvent:
    """Change the series. A move of one occurrence moves all of them by the same local time."""
    there = replace(series, start_local=start, end_local=start + series.duration)
    changed = change(there)
    shift = changed.start_local - start
    first = series.start_local + shift
    moved = replace(
        changed,
        start_local=first,
        end_local=first + changed.duration,
        rule=_shifted_rule(changed.rule, series, _days(start, changed)),
        extra_dates=tuple(one + shift for one in series.extra_dates),
        except_dates=tuple(one + shift for one in series.except_dates),
    )
    saved = await _save(connection, moved)
    if shift:
        overrides = await store.overrides_of(connection, series.id)
        # In the direction of the move, so that no two of them ever have the same time.
        for override in sorted(overrides, key=_at, reverse=shift > timedelta(0)):
            await _save(connection, replace(override, recurs_at=_at(override) + shift))
    return saved


async def _split(
    connection: Connection, series: CalendarEvent, start: datetime, change: Change
) -> CalendarEvent:
    """End the series before ``start`` and continue it, changed, as a series of its own."""
    later = [one for one in await store.overrides_of(connection, series.id) if _at(one) >= start]
    tail = replace(
        series,
        id=uuid7(),
        uid=f"{uuid7()}",
        start_local=start,
        end_local=start + series.duration,
        rule=_rule_from(series, start),
        extra_dates=tuple(one for one in series.extra_dates if one >= start),
        except_dates=tuple(one for one in series.except_dates if one >= start),
        sequence=0,
    )
    changed = change(tail)
    shift = changed.start_local - start
    changed = replace(
        changed,
        rule=_shifted_rule(changed.rule, series, _days(start, changed)),
        extra_dates=tuple(one + shift for one in changed.extra_dates),
        except_dates=tuple(one + shift for one in changed.except_dates),
    )
    await _save(connection, _ending_before(series, start))
    await store.save_event(connection, changed)
    for one in later:
        moved = replace(one, series_id=changed.id, uid=changed.uid, recurs_at=_at(one) + shift)
        await _save(connection, moved)
    return changed


def _days(start: datetime, changed: CalendarEvent) -> int:
    """Return by how many days the changed event begins later."""
    return (changed.start_local.date() - start.date()).days


def _shifted_rule(rule: str | None, series: CalendarEvent, days: int) -> str | None:
    """Return a rule whose named weekdays move with the series, if the same rule stays."""
    if rule is None or not days or rule != series.rule:
        return rule
    read = read_rule(rule)
    if not read.by_day:
        return rule
    if any(ordinal for ordinal, _ in read.by_day) or read.by_month_day or read.by_position:
        raise InvalidArguments(
            "moving the whole series to another day needs a new repetition",
            hint="give recurrence_rule too",
        )
    named = ",".join(WEEKDAYS[day] for day in sorted((day + days) % 7 for _, day in read.by_day))
    parts = [part for part in rule.split(";") if not part.startswith("BYDAY=")]
    return ";".join([*parts, f"BYDAY={named}"])


def _ending_before(series: CalendarEvent, start: datetime) -> CalendarEvent:
    """Return the series without its occurrences from ``start`` on."""
    return replace(
        series,
        rule=series.rule and _with_until(series, start - timedelta(seconds=1)),
        extra_dates=tuple(one for one in series.extra_dates if one < start),
        except_dates=tuple(one for one in series.except_dates if one < start),
    )


def _with_until(series: CalendarEvent, last: datetime) -> str:
    kept = [
        part for part in (series.rule or "").split(";") if not part.startswith(("COUNT=", "UNTIL="))
    ]
    if series.all_day:
        return ";".join([*kept, f"UNTIL={last:%Y%m%d}"])
    until = instant_of(last, series.zone).astimezone(UTC)
    return ";".join([*kept, f"UNTIL={until:%Y%m%dT%H%M%S}{'Z' if series.zone else ''}"])


def _rule_from(series: CalendarEvent, start: datetime) -> str | None:
    """Return the rule of the rest of a series; of a counted one, with the occurrences that are left."""
    if series.rule is None:
        return None
    rule = read_rule(series.rule)
    if rule.count is None:
        return series.rule
    passed = sum(
        1 for one in expand(rule, series.start_local, series.start_local, start) if one < start
    )
    kept = [part for part in series.rule.split(";") if not part.startswith("COUNT=")]
    return ";".join([*kept, f"COUNT={max(1, rule.count - passed)}"])


async def _save(connection: Connection, event: CalendarEvent) -> CalendarEvent:
    changed = replace(event, sequence=event.sequence + 1)
    await store.save_event(connection, changed)
    return changed
