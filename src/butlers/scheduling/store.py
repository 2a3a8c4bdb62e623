"""SQL of scheduled tasks and their runs.

A tick reads due tasks, computes each next time, and claims with one statement that advances
``next_run_at`` only if it still has the value that was read: of two ticks, one gets a due time. The run
and its queue item are written in the same transaction, so no claimed due time is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.errors import InvalidArguments
from butlers.domain.json_safe import text_safe
from butlers.domain.message import RequestContext
from butlers.domain.provenance import Trust
from butlers.domain.queues import SCHEDULES
from butlers.domain.schedule import (
    Address,
    DisabledBy,
    DispatchMode,
    Missed,
    Run,
    RunOutcome,
    Task,
    TaskSource,
)
from butlers.queue import leased_queue as queue
from butlers.wire.codec import decode, encode

MAX_DETAIL = 2000  # characters of a run's detail that are kept
MAX_EVENTS = 1000  # butler events that are looked at
CHANGED = "schedules_changed"  # the topic that wakes the loop


# -- tasks -----------------------------------------------------------------------------------------


async def create_task(connection: Connection, task: Task) -> None:
    created = await connection.fetchval(
        """
        INSERT INTO scheduled_tasks (
            id, name, dispatch_mode, source, created_by, cron, run_at, timezone, prompt, message,
            job_name, job_args, check_name, missed, missed_within_s, exact, channel, target, thread,
            request, enabled, disabled_by, next_run_at, title, minutes, start_at, until_at
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                $19, $20, $21, $22, $23, $24, $25, $26, $27)
        ON CONFLICT (name) DO NOTHING RETURNING true
        """,
        *_identity(task),
        *_content(task),
    )
    if not created:
        raise InvalidArguments(
            f"a schedule named {task.name!r} already exists",
            hint="choose another name, or change that one with schedule_update",
        )
    await queue.notify(connection, CHANGED)


async def change_task(connection: Connection, task: Task) -> None:
    """Update a task. Its name never changes."""
    await connection.execute(
        """
        UPDATE scheduled_tasks
        SET dispatch_mode = $3, source = $4, created_by = $5, cron = $6, run_at = $7,
            timezone = $8, prompt = $9, message = $10, job_name = $11, job_args = $12,
            check_name = $13, missed = $14, missed_within_s = $15, exact = $16, channel = $17,
            target = $18, thread = $19, request = $20, enabled = $21, disabled_by = $22,
            next_run_at = $23, title = $24, minutes = $25, start_at = $26, until_at = $27,
            updated_at = now()
        WHERE id = $1 AND name = $2
        """,
        *_identity(task),
        *_content(task),
    )
    await queue.notify(connection, CHANGED)


async def delete_task(connection: Connection, task_id: UUID) -> None:
    await connection.execute("DELETE FROM scheduled_tasks WHERE id = $1", task_id)
    await queue.notify(connection, CHANGED)


async def find_reminders(connection: Connection, text: str) -> list[Task]:
    """Return the coming reminders whose message contains the text, soonest first."""
    rows = await connection.fetch(
        """
        SELECT * FROM scheduled_tasks
        WHERE next_run_at IS NOT NULL AND position(lower($1) IN lower(message)) > 0
        ORDER BY next_run_at LIMIT 20 FOR UPDATE
        """,
        text,
    )
    return [_task(row) for row in rows]


async def find_task(connection: Connection, task_id: UUID, *, lock: bool = False) -> Task | None:
    for_update = "FOR UPDATE" if lock else ""
    row = await connection.fetchrow(
        f"SELECT * FROM scheduled_tasks WHERE id = $1 {for_update}", task_id
    )
    return _task(row) if row else None


async def list_tasks(
    connection: Connection,
    *,
    include_ended: bool,
    limit: int,
    offset: int,
    reminders_only: bool = False,
) -> list[Task]:
    """List tasks by next run. A one-time task that has run is ended; a disabled task is not."""
    rows = await connection.fetch(
        """
        SELECT * FROM scheduled_tasks
        WHERE ($1 OR cron IS NOT NULL OR next_run_at IS NOT NULL) AND (NOT $4 OR message IS NOT NULL)
        ORDER BY next_run_at NULLS LAST, name LIMIT $2 OFFSET $3
        """,
        include_ended,
        limit,
        offset,
        reminders_only,
    )
    return [_task(row) for row in rows]


async def list_events(connection: Connection) -> list[Task]:
    """List the tasks that are butler events, also disabled ones, but none that has ended."""
    rows = await connection.fetch(
        """
        SELECT * FROM scheduled_tasks
        WHERE title IS NOT NULL AND (next_run_at IS NOT NULL OR NOT enabled)
        ORDER BY next_run_at NULLS LAST, name LIMIT $1
        """,
        MAX_EVENTS,
    )
    return [_task(row) for row in rows]


async def lock_tasks(connection: Connection, names: Sequence[str]) -> dict[str, Task]:
    """Lock the table; return all tasks of source 'toml' and all with one of these names."""
    await connection.execute("LOCK TABLE scheduled_tasks IN SHARE ROW EXCLUSIVE MODE")
    rows = await connection.fetch(
        "SELECT * FROM scheduled_tasks WHERE source = 'toml' OR name = ANY($1::text[])", names
    )
    return {row["name"]: _task(row) for row in rows}


# -- due times -------------------------------------------------------------------------------------


async def read_due(connection: Connection, now: datetime, limit: int) -> list[Task]:
    """Return due tasks, oldest first, without claiming them."""
    rows = await connection.fetch(
        """
        SELECT * FROM scheduled_tasks
        WHERE enabled AND next_run_at <= $1 ORDER BY next_run_at LIMIT $2
        """,
        now,
        limit,
    )
    return [_task(row) for row in rows]


async def claim(
    connection: Connection, due: Iterable[tuple[UUID, datetime, datetime | None]]
) -> set[UUID]:
    """Claim due times and advance their tasks in one statement; return the ids of claimed tasks.

    Each item is (task id, next_run_at as read, following next_run_at). A row that another tick has
    locked or advanced is skipped.
    """
    ids, read, following = zip(*due, strict=True)
    rows = await connection.fetch(
        """
        WITH mine AS (
            SELECT task.id, wanted.following
            FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[])
                AS wanted(id, due_at, following)
            JOIN scheduled_tasks AS task
                ON task.id = wanted.id AND task.next_run_at = wanted.due_at AND task.enabled
            FOR UPDATE OF task SKIP LOCKED
        )
        UPDATE scheduled_tasks AS task SET next_run_at = mine.following
        FROM mine WHERE task.id = mine.id
        RETURNING task.id
        """,
        ids,
        read,
        following,
    )
    return {row["id"] for row in rows}


async def next_due_at(connection: Connection) -> datetime | None:
    due: datetime | None = await connection.fetchval(
        "SELECT next_run_at FROM scheduled_tasks"
        " WHERE enabled AND next_run_at IS NOT NULL ORDER BY next_run_at LIMIT 1"
    )
    return due


# -- runs ------------------------------------------------------------------------------------------


async def open_run(connection: Connection, run: Run, start_at: datetime, delay: timedelta) -> None:
    """Insert a run and its queue item, in the transaction of its claim."""
    await _insert_run(connection, run)
    payload = {"run_id": str(run.id), "start_at": start_at.isoformat()}
    await queue.enqueue(connection, SCHEDULES, str(run.id), payload, delay=delay)


async def record_run(connection: Connection, run: Run) -> None:
    """Insert a run that already has its outcome."""
    await _insert_run(connection, run)
    await _update_last_result(connection, run)


async def find_run(connection: Connection, run_id: UUID) -> Run | None:
    row = await connection.fetchrow("SELECT * FROM schedule_runs WHERE id = $1", run_id)
    return _run(row) if row else None


async def begin_run(connection: Connection, run_id: UUID, now: datetime) -> None:
    await connection.execute(
        "UPDATE schedule_runs SET started_at = coalesce(started_at, $2) WHERE id = $1", run_id, now
    )


async def note_run(connection: Connection, run_id: UUID, detail: str) -> None:
    """Store why the run has not ended yet."""
    await connection.execute(
        "UPDATE schedule_runs SET detail = $2 WHERE id = $1 AND outcome IS NULL", run_id, detail
    )


async def end_run(connection: Connection, run: Run) -> None:
    """Store a run's outcome; the first outcome wins."""
    ended = await connection.fetchval(
        """
        UPDATE schedule_runs SET outcome = $2, detail = $3, finished_at = $4, session_id = $5
        WHERE id = $1 AND outcome IS NULL RETURNING true
        """,
        run.id,
        run.outcome,
        _storable_text(run.detail),
        run.finished_at,
        run.session_id,
    )
    if ended:
        await _update_last_result(connection, run)


async def still_running(connection: Connection, task_ids: Iterable[UUID]) -> dict[UUID, datetime]:
    """Return the due time of the unfinished run of each of these tasks that has one."""
    rows = await connection.fetch(
        """
        SELECT run.task_id, max(run.due_at) AS due_at
        FROM schedule_runs AS run
        JOIN queue_items AS item ON item.queue = $2 AND item.key = run.id::text
        WHERE run.outcome IS NULL AND run.task_id = ANY($1::uuid[])
          AND item.state IN ('ready', 'leased')
        GROUP BY run.task_id
        """,
        list(task_ids),
        SCHEDULES,
    )
    return {row["task_id"]: row["due_at"] for row in rows}


async def end_dead_runs(connection: Connection, now: datetime) -> int:
    """Mark runs as failed whose queue item is a dead letter."""
    rows = await connection.fetch(
        """
        UPDATE schedule_runs AS run
        SET outcome = 'failed', finished_at = $2, detail = item.error
        FROM queue_items AS item
        WHERE run.outcome IS NULL AND item.queue = $1 AND item.key = run.id::text
          AND item.state = 'dead'
        RETURNING run.*
        """,
        SCHEDULES,
        now,
    )
    for row in rows:
        await _update_last_result(connection, _run(row))
    return len(rows)


async def recent_runs(
    connection: Connection, task_ids: Sequence[UUID], each: int
) -> dict[UUID, list[Run]]:
    rows = await connection.fetch(
        """
        SELECT run.* FROM unnest($1::uuid[]) AS wanted(id)
        CROSS JOIN LATERAL (
            SELECT * FROM schedule_runs WHERE task_id = wanted.id ORDER BY due_at DESC LIMIT $2
        ) AS run
        """,
        task_ids,
        each,
    )
    found: dict[UUID, list[Run]] = {}
    for row in rows:
        found.setdefault(row["task_id"], []).append(_run(row))
    return found


async def _insert_run(connection: Connection, run: Run) -> None:
    await connection.execute(
        """
        INSERT INTO schedule_runs (id, task_id, task_name, due_at, started_at, finished_at, outcome,
                                   detail, session_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (task_id, due_at) DO NOTHING
        """,
        run.id,
        run.task_id,
        run.task_name,
        run.due_at,
        run.started_at,
        run.finished_at,
        run.outcome,
        run.detail,
        run.session_id,
    )


async def _update_last_result(connection: Connection, run: Run) -> None:
    """Set the task's last result, unless a later due time already ended."""
    detail = _storable_text(run.detail)
    result = {"outcome": run.outcome, "detail": detail, "due_at": run.due_at.isoformat()}
    await connection.execute(
        """
        UPDATE scheduled_tasks SET last_run_at = coalesce($2, last_run_at), last_result = $3
        WHERE id = $1
          AND (last_result IS NULL OR (last_result ->> 'due_at')::timestamptz <= $4)
        """,
        run.task_id,
        run.started_at,
        result,
        run.due_at,
    )


def _storable_text(detail: str | None) -> str | None:
    """Escape characters that a text column cannot hold, and cut to MAX_DETAIL."""
    if detail is None:
        return None
    return text_safe(detail[:MAX_DETAIL])


# -- rows ------------------------------------------------------------------------------------------


def _identity(task: Task) -> tuple[Any, ...]:
    return task.id, task.name, task.mode, task.source, task.created_by


def _content(task: Task) -> tuple[Any, ...]:
    address = task.address
    return (
        task.cron,
        task.run_at,
        task.timezone,
        task.prompt,
        task.message,
        task.job_name,
        task.job_args,
        task.check_name,
        task.missed,
        task.missed_within_s,
        task.exact,
        address and address.channel,
        address and address.target,
        address and address.thread,
        encode(task.request) if task.request else None,
        task.enabled,
        task.disabled_by,
        task.next_run_at,
        task.title,
        task.minutes,
        task.start_at,
        task.until_at,
    )


def _task(row: asyncpg.Record) -> Task:
    channel = row["channel"]
    return Task(
        id=row["id"],
        name=row["name"],
        mode=DispatchMode(row["dispatch_mode"]),
        source=TaskSource(row["source"]),
        created_by=row["created_by"],
        cron=row["cron"],
        run_at=row["run_at"],
        timezone=row["timezone"],
        prompt=row["prompt"],
        message=row["message"],
        job_name=row["job_name"],
        job_args=row["job_args"] or {},
        check_name=row["check_name"],
        missed=Missed(row["missed"]),
        missed_within_s=row["missed_within_s"],
        exact=row["exact"],
        address=Address(channel, row["target"], row["thread"]) if channel else None,
        request=decode(RequestContext, row["request"]) if row["request"] else None,
        sender=row["sender"],
        trust=Trust(row["trust"]),
        enabled=row["enabled"],
        disabled_by=DisabledBy(row["disabled_by"]) if row["disabled_by"] else None,
        next_run_at=row["next_run_at"],
        last_run_at=row["last_run_at"],
        last_result=row["last_result"],
        title=row["title"],
        minutes=row["minutes"],
        start_at=row["start_at"],
        until_at=row["until_at"],
    )


def _run(row: asyncpg.Record) -> Run:
    return Run(
        id=row["id"],
        task_id=row["task_id"],
        task_name=row["task_name"],
        due_at=row["due_at"],
        outcome=RunOutcome(row["outcome"]) if row["outcome"] else None,
        detail=row["detail"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        session_id=row["session_id"],
    )
