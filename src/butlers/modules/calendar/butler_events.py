"""Butler events: schedules of this butler that the calendar shows.

The schedule is the only record of such an event, so that what the calendar shows is what will run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from butlers.domain.errors import InvalidArguments
from butlers.domain.schedule import Missed, Task
from butlers.modules.calendar.model import CalendarEvent, Occurrence, Window
from butlers.modules.calendar.rules import RecurrenceRule, read_rule, until_instant
from butlers.modules.calendar.zones import instant_of, local_of
from butlers.scheduling.cron import parse

MAX_SHOWN = 200  # runs of one event in a window


@dataclass(frozen=True, slots=True)
class EventTiming:
    """Time of a butler event: once at its start, or from then on as the cron expression says."""

    start: datetime  # local
    minutes: int
    cron: str | None = None
    until_at: datetime | None = None

    def apply(self, task: Task) -> Task:
        start_at = instant_of(self.start, task.timezone)
        return replace(
            task,
            cron=self.cron,
            run_at=None if self.cron else start_at,
            start_at=start_at,
            until_at=self.until_at if self.cron else None,
            minutes=self.minutes,
            exact=True,
            missed=Missed.SKIP if self.cron else Missed.ONCE,
        )


def cron_of(rule: str, start: datetime) -> str:
    """Return the cron expression of a recurrence rule. Raises InvalidArguments if there is none."""
    read = read_rule(rule).anchored(start)
    if not _fits_cron(read):
        raise InvalidArguments(
            "a butler event cannot repeat like this",
            hint="use days of the week, of the month or of the year, without COUNT or INTERVAL, or cron",
        )
    days = _list(read.by_month_day)
    months = _list(read.by_month)
    weekdays = _list({(weekday + 1) % 7 for _, weekday in read.by_day})
    return f"{start.minute} {start.hour} {days} {months} {weekdays}"


def end_of(rule: str, zone: ZoneInfo) -> datetime | None:
    """Return the last allowed start that the rule names."""
    until = read_rule(rule).until
    return until_instant(until, zone) if until else None


def coming(task: Task, window: Window) -> list[Occurrence]:
    """Return the runs of an event in a window that are still to come."""
    first = task.next_run_at
    if first is None:
        return []
    ahead = [first]
    if task.cron is not None:
        after = max(first, window.start - timedelta(minutes=task.minutes or 0, seconds=1))
        last = min(window.end, task.until_at or window.end)
        times = parse(task.cron, task.timezone).times_after(after)
        ahead += islice(takewhile(lambda due: due <= last, times), MAX_SHOWN)
    found = [occurrence_of(task, due) for due in ahead]
    return [one for one in found if window.contains(one)]


def occurrence_of(task: Task, due_at: datetime) -> Occurrence:
    """Return the run of an event as the calendar shows it."""
    start = local_of(due_at, task.timezone)
    return CalendarEvent(
        id=task.id,
        source_id=task.id,
        uid=str(task.id),
        title=task.title or task.name,
        start_local=start,
        end_local=start + timedelta(minutes=task.minutes or 0),
        zone=task.timezone,
        busy=False,
        sender=task.sender,
        trust=task.trust,
    ).single()


def _fits_cron(rule: RecurrenceRule) -> bool:
    # Cron takes days of the week and of the month as alternatives, a rule as conditions.
    days = not (rule.by_day and rule.by_month_day) and all(day > 0 for day in rule.by_month_day)
    counted = rule.interval != 1 or rule.count is not None or bool(rule.by_position)
    other = rule.by_week or rule.by_year_day or rule.hours or rule.minutes or rule.seconds
    return days and not counted and not other and not any(nth for nth, _ in rule.by_day)


def _list(values: Iterable[int]) -> str:
    return ",".join(str(value) for value in sorted(values)) or "*"
