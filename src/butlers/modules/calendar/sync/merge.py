"""Three-way merge of an event that changed here and on the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from butlers.modules.calendar.ical import Components
from butlers.modules.calendar.model import CalendarEvent

# Values that belong together change together.
GROUPS = (
    ("title",),
    ("description",),
    ("location",),
    ("start_local", "end_local", "zone", "all_day", "rule"),
    ("extra_dates",),
    ("except_dates",),
    ("status",),
    ("visibility",),
    ("busy",),
    ("organizer",),
    ("attendees",),
    ("notify_minutes",),
)


def same(first: CalendarEvent, second: CalendarEvent) -> bool:
    return all(_of(first, group) == _of(second, group) for group in GROUPS)


def merge(base: Components, ours: Components, theirs: Components) -> tuple[Components, list[str]]:
    """Return the merged event and what was changed on both sides, where the server's value is kept.

    A change beats a deletion, on either side.
    """
    merged: Components = {}
    lost: list[str] = []
    for key in {*base, *ours, *theirs}:
        found = _merged(base.get(key), ours.get(key), theirs.get(key), lost)
        if found is not None:
            merged[key] = found
    return (merged if None in merged else {}), lost


def _merged(
    base: CalendarEvent | None,
    ours: CalendarEvent | None,
    theirs: CalendarEvent | None,
    lost: list[str],
) -> CalendarEvent | None:
    if ours is None or theirs is None:
        kept = ours or theirs
        deleted = base is not None and kept is not None and same(base, kept)
        return None if deleted else kept
    if base is None:
        base = theirs if same(ours, theirs) else ours
    result = theirs
    for group in GROUPS:
        before, mine, other = _of(base, group), _of(ours, group), _of(theirs, group)
        if other == before:
            values: dict[str, Any] = dict(zip(group, mine, strict=True))
            result = replace(result, **values)
        elif mine not in (before, other):
            lost.append(group[0])
    return replace(result, sequence=max(ours.sequence, theirs.sequence))


def _of(event: CalendarEvent, group: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(getattr(event, name) for name in group)
