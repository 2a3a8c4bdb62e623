"""What a tick does with a task that is due: run it, or say that its time was missed.

Pure: a task and the time go in, the decision comes out, and one transaction writes it down.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from butlers.domain.schedule import Missed, RunOutcome, Task
from butlers.scheduling.cron import Cron, find_zone, parse
from butlers.scheduling.stagger import stagger

COUNTED = 1000  # due times of one gap; beyond that it is "more than a thousand"


@dataclass(frozen=True, slots=True)
class Rules:
    butler: str
    on_time: timedelta  # a tick this late still counts as there
    spread: timedelta  # the window of the stagger


@dataclass(frozen=True, slots=True)
class Planned:
    """One due time: to be run after ``delay``, or already decided by ``outcome``."""

    due_at: datetime
    outcome: RunOutcome | None = None
    detail: str | None = None
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Plan:
    task: Task
    claimed: (
        datetime  # the next_run_at that was read; another value later means another tick took it
    )
    next_run_at: datetime | None
    due: tuple[Planned, ...]
    question: str | None = None  # for the owner


def plan(task: Task, now: datetime, rules: Rules) -> Plan:
    assert task.next_run_at is not None
    first = task.next_run_at
    cron = parse(task.cron, task.timezone) if task.cron else None
    last = (cron.latest(first, now) if cron else None) or first
    following = cron.next_after(max(last, now)) if cron else None
    earlier = cron.count(first, last, COUNTED) if cron and last > first else 0
    question = None
    if now - last <= rules.on_time:
        latest = Planned(last, delay=_delay(task, cron, last, following, now, rules))
    else:
        verdict = judge_late(task, last, now, earlier + 1)
        latest, question = verdict.planned, verdict.question
    passed_by = (_passed_by(task, first, last, earlier, latest),) if earlier else ()
    return Plan(task, first, following, (*passed_by, latest), question)


@dataclass(frozen=True, slots=True)
class Verdict:
    planned: Planned
    question: str | None = None


def judge_late(task: Task, due_at: datetime, now: datetime, times: int = 1) -> Verdict:
    """Whether a due time that nobody was there for is made up for, asked about, or let go."""
    late = now - due_at
    seconds = task.missed_within_s
    too_old = seconds is not None and late > timedelta(seconds=seconds)
    if task.missed is Missed.SKIP or too_old:
        why = f"more than {seconds:g} s ago" if too_old else "missed = skip"
        return Verdict(_missed(due_at, f"{spoken(late)} late; not made up for: {why}"))
    if task.missed is Missed.ASK:
        detail = f"{spoken(late)} late; the owner was asked"
        return Verdict(_missed(due_at, detail), _question(task, due_at, times))
    return Verdict(Planned(due_at, detail=f"{spoken(late)} late"))


def local(task: Task, instant: datetime) -> str:
    return instant.astimezone(find_zone(task.timezone)).strftime("%Y-%m-%d %H:%M")


def spoken(duration: timedelta) -> str:
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
    rules: Rules,
) -> timedelta:
    if task.exact or cron is None or following is None:
        return timedelta(0)
    if cron.next_after(due_at - timedelta(seconds=1)) != due_at:  # somebody asked for it now
        return timedelta(0)
    start = due_at + stagger(rules.butler, task.name, following - due_at, rules.spread)
    return max(timedelta(0), start - now)


def _passed_by(task: Task, first: datetime, last: datetime, times: int, latest: Planned) -> Planned:
    """One entry for all the due times before the last: a month of minutes is not a month of rows."""
    many = f"more than {COUNTED}" if times >= COUNTED else str(times)
    span = f"{many} due time{'s' if times > 1 else ''} from {local(task, first)}"
    if latest.outcome is None and task.missed is Missed.ONCE:
        detail = f"{span}: the run of {local(task, last)} stands in"
        return Planned(first, RunOutcome.SKIPPED, detail)
    return _missed(first, span)


def _missed(due_at: datetime, detail: str) -> Planned:
    return Planned(due_at, RunOutcome.MISSED, detail)


def _question(task: Task, due_at: datetime, times: int) -> str:
    missed = "was missed" if times == 1 else f"was missed {times} times, last"
    return (
        f"The schedule {task.name!r} {missed} at {local(task, due_at)}, because I was not running. "
        f'Shall it run now? If so: schedule_update with id "{task.id}" and run_now true.'
    )
