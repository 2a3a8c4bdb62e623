"""Decide what to do with a due task: run it, delay it, or record that its time was missed.

Pure: input is a task and the time; one transaction stores the decision.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from butlers.domain.schedule import Missed, RunOutcome, Task
from butlers.scheduling.cron import Cron, find_zone, parse

WINDOW = timedelta(minutes=15)


def stagger(butler: str, task: str, cadence: timedelta, window: timedelta = WINDOW) -> timedelta:
    """Return the delay that spreads tasks like ``@daily``, so that they do not all start at once.

    The delay is constant for a butler and task, less than the window and the cadence. It applies only
    to tasks without a chosen minute, and not to reminders. ``next_run_at`` stays the time of the cron
    expression; only the start waits, in the queue. A window of 0 disables it.
    """
    room = int(min(window, cadence).total_seconds())
    if room <= 0:
        return timedelta(0)
    digest = hashlib.sha256(f"{butler}\0{task}".encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % room)


MAX_COUNTED = 1000  # missed due times that are counted


@dataclass(frozen=True, slots=True)
class PlanRules:
    butler: str
    on_time: timedelta  # a tick that is at most this late is on time
    spread: timedelta  # window for stagger()


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One due time: to run after ``delay``, or already decided by ``outcome``."""

    due_at: datetime
    outcome: RunOutcome | None = None
    detail: str | None = None
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class DuePlan:
    task: Task
    claimed: datetime  # next_run_at as read; if it has changed, another tick claimed the due time
    next_run_at: datetime | None
    due: tuple[PlannedRun, ...]
    question: str | None = None  # for the owner


def plan(task: Task, now: datetime, rules: PlanRules) -> DuePlan:
    assert task.next_run_at is not None
    first = task.next_run_at
    cron = parse(task.cron, task.timezone) if task.cron else None
    last = (cron.latest(first, min(now, task.until_at or now)) if cron else None) or first
    following = task.within(cron.next_after(max(last, now))) if cron else None
    earlier = cron.count(first, last, MAX_COUNTED) if cron and last > first else 0
    question = None
    if now - last <= rules.on_time:
        latest = PlannedRun(last, delay=_delay(task, cron, last, following, now, rules))
    else:
        decision = decide_late(task, last, now, earlier + 1)
        latest, question = decision.planned, decision.question
    passed_by = (_earlier_due_times(task, first, last, earlier, latest),) if earlier else ()
    return DuePlan(task, first, following, (*passed_by, latest), question)


@dataclass(frozen=True, slots=True)
class LateDecision:
    planned: PlannedRun
    question: str | None = None


def decide_late(task: Task, due_at: datetime, now: datetime, times: int = 1) -> LateDecision:
    """Decide whether a missed due time runs late, becomes a question to the owner, or is dropped."""
    late = now - due_at
    seconds = task.missed_within_s
    too_old = seconds is not None and late > timedelta(seconds=seconds)
    if task.missed is Missed.SKIP or too_old:
        why = f"more than {seconds:g} s ago" if too_old else "missed = skip"
        return LateDecision(_missed(due_at, f"{format_duration(late)} late; not run: {why}"))
    if task.missed is Missed.ASK:
        detail = f"{format_duration(late)} late; the owner was asked"
        return LateDecision(_missed(due_at, detail), _question(task, due_at, times))
    return LateDecision(PlannedRun(due_at, detail=f"{format_duration(late)} late"))


def local(task: Task, instant: datetime) -> str:
    return instant.astimezone(find_zone(task.timezone)).strftime("%Y-%m-%d %H:%M")


def format_duration(duration: timedelta) -> str:
    seconds = int(duration.total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _delay(
    task: Task,
    cron: Cron | None,
    due_at: datetime,
    following: datetime | None,
    now: datetime,
    rules: PlanRules,
) -> timedelta:
    if task.exact or cron is None or following is None:
        return timedelta(0)
    if cron.next_after(due_at - timedelta(seconds=1)) != due_at:  # started by run_now
        return timedelta(0)
    start = due_at + stagger(rules.butler, task.name, following - due_at, rules.spread)
    return max(timedelta(0), start - now)


def _earlier_due_times(
    task: Task, first: datetime, last: datetime, times: int, latest: PlannedRun
) -> PlannedRun:
    """Return one entry for all due times before the last, to avoid a row for each."""
    many = f"more than {MAX_COUNTED}" if times >= MAX_COUNTED else str(times)
    span = f"{many} due time{'s' if times > 1 else ''} from {local(task, first)}"
    if latest.outcome is None and task.missed is Missed.ONCE:
        detail = f"{span}: replaced by the run of {local(task, last)}"
        return PlannedRun(first, RunOutcome.SKIPPED, detail)
    return _missed(first, span)


def _missed(due_at: datetime, detail: str) -> PlannedRun:
    return PlannedRun(due_at, RunOutcome.MISSED, detail)


def _question(task: Task, due_at: datetime, times: int) -> str:
    missed = "was missed" if times == 1 else f"was missed {times} times, last"
    return (
        f"The schedule {task.name!r} {missed} at {local(task, due_at)}, because I was not running. "
        f'Should it run now? If so: schedule_update with id "{task.id}" and run_now true.'
    )
