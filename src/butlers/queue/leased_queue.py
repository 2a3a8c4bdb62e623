"""The leased queue: one primitive that carries inbox, routes, notifications, deliveries and schedules.

An item is claimed under a lease. Each claim raises the item's fence; completing, failing or extending
needs the fence of the claim, so a worker that was frozen past its lease cannot finish an item that another
worker has taken over. The SQL statements resolve all races, and use only the database's clock.

Items of one lane run one at a time and in their order. An item that failed and waits for its next attempt
steps aside: the items behind it in the lane do not wait for it.

    ready -> leased -> done
       ^        |----> dead          (attempts used up, or a permanent failure)
       '--------'                    (retry after a delay; a planned restart, or a wait for an
                                      unavailable peer, does not count as an attempt)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection, note_topic
from butlers.domain.clock import uuid7
from butlers.domain.errors import LeaseLost
from butlers.wire.telemetry import count_lease_expiries

DEAD = "dead"  # notified like a queue, to wake the dead letter notices
LEASE = timedelta(seconds=30)
MAX_ATTEMPTS = 8
BUSY = "others are handled first"  # error of an item that waits for a free place
KEPT = "kept until the owner asks for it"  # the error of items that nothing else makes due
LONGEST_WAIT = timedelta(days=1)
# An item that is due for longer had no worker: the machine was off, and the time does not count as waiting.
NO_WORKER = timedelta(hours=1)
SHORTEST_PAUSE, LONGEST_PAUSE = timedelta(seconds=0.5), timedelta(seconds=30)
_NO_WORKER = f"interval '{NO_WORKER.total_seconds():.0f} seconds'"


# First open item of a lane, or of the next lane where this one is empty. Ordered like the index of lanes:
# a plan with any other index reads all finished items again for every item.
_FIRST = """(
    SELECT first.id FROM queue_items AS first
    WHERE first.queue = {queue} AND first.lane >= {lane} AND first.state IN ('ready', 'leased')
      AND (first.state = 'leased' OR first.run_after <= statement_timestamp() OR NOT first.aside)
    ORDER BY first.lane, first.id LIMIT 1
)"""

# An item that waits without stepping aside delays the items behind it in its lane. They could not be claimed
# before it anyway, and each claim would have to look at every one of them. If it waits for an unavailable
# peer, so do they: their longest wait begins now, not when their own turn comes.
_AND_LANE = """
WITH head AS ({head} RETURNING *),
behind AS (
    SELECT item.id, head.run_after, head.waits_since IS NOT NULL AS away
    FROM queue_items AS item JOIN head USING (queue, lane)
    WHERE head.state = 'ready' AND item.state = 'ready' AND item.id > head.id
      AND item.run_after < head.run_after AND NOT item.aside
    FOR UPDATE OF item SKIP LOCKED
),
moved AS (
    UPDATE queue_items AS item
    SET run_after = behind.run_after, error = coalesce(item.error, 'an earlier one waits'),
        waits_since = CASE WHEN behind.away THEN
            CASE WHEN item.run_after < now() - {no_worker} THEN now()
            ELSE coalesce(item.waits_since, now()) END END
    FROM behind WHERE item.id = behind.id
)
SELECT true FROM head
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """One claim of one item. It is the current claim while its ``fence`` equals the item's."""

    item_id: UUID
    queue: str
    key: str
    payload: Any
    attempt: int
    max_attempts: int
    fence: int
    priority: int = 0

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> Lease:
        return cls(
            item_id=row["id"],
            queue=row["queue"],
            key=row["key"],
            payload=row["payload"],
            attempt=row["attempts"],
            max_attempts=row["max_attempts"],
            fence=row["fence"],
            priority=row["priority"],
        )

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts


async def enqueue(
    connection: Connection,
    queue: str,
    key: str,
    payload: Any,
    *,
    priority: int = 0,
    delay: timedelta = timedelta(0),
    max_attempts: int = MAX_ATTEMPTS,
    lane: str | None = None,
    item_id: UUID | None = None,
) -> bool:
    """Add an item, once per key, and return whether it was added. Workers wake when the caller's
    transaction commits. The item's id decides its place in the lane; the default is the last place.

    The item is due from the statement's time, not the transaction's: items of one transaction keep their
    order.
    """
    created = await connection.fetchval(
        """
        WITH item AS (
            INSERT INTO queue_items
                (id, queue, key, payload, priority, run_after, max_attempts, lane)
            VALUES ($1, $2, $3, $4, $5, statement_timestamp() + $6, $7, $8)
            ON CONFLICT (queue, key) DO NOTHING
            RETURNING queue
        )
        SELECT true, pg_notify('butlers:' || current_schema(), queue) FROM item
        """,
        item_id or uuid7(),
        queue,
        key,
        payload,
        priority,
        delay,
        max_attempts,
        lane,
    )
    if created:
        note_topic(connection, queue)
    return bool(created)


async def notify(connection: Connection, queue: str) -> None:
    """Wake this schema's workers. Every role may listen to NOTIFY, so it carries only the queue's name."""
    await connection.execute("SELECT pg_notify('butlers:' || current_schema(), $1)", queue)
    note_topic(connection, queue)


async def claim(
    connection: Connection,
    queue: str,
    holder: int,
    *,
    limit: int = 1,
    lease: timedelta = LEASE,
    below: int = -1,
) -> list[Lease]:
    """Lease up to ``limit`` due items to the holder, the most urgent first.

    ``below`` restricts the claim to items less urgent than that priority, so that they are not starved.
    """
    # The limit is part of the text: for a parameter the server keeps no generic plan, and planning takes
    # longer than claiming. And "<=" where "=" would do: the planner takes an equality for rare, and would
    # read and sort everything that waits.
    rows = await connection.fetch(
        f"""
        UPDATE queue_items
        SET state = 'leased', holder = $2, lease_until = now() + $3,
            attempts = attempts + 1, fence = fence + 1, aside = false,
            waits_since = CASE WHEN run_after >= now() - {_NO_WORKER} THEN waits_since END
        WHERE id = ANY(ARRAY(
            SELECT item.id FROM queue_items AS item
            LEFT JOIN LATERAL {_FIRST.format(queue="item.queue", lane="item.lane")} AS turn ON true
            WHERE item.queue = $1 AND item.state = 'ready'
              AND item.run_after <= statement_timestamp() AND item.priority > $4
              AND (item.lane IS NULL OR item.id <= turn.id)
            ORDER BY item.priority, item.run_after, item.id
            LIMIT {limit:d}
            FOR UPDATE OF item SKIP LOCKED
        ))
        RETURNING id, queue, key, payload, attempts, max_attempts, fence, priority, run_after
        """,
        queue,
        holder,
        lease,
        below,
    )
    rows.sort(key=lambda row: (row["priority"], row["run_after"], row["id"]))
    return [Lease.from_row(row) for row in rows]


async def change_lane(connection: Connection, lease: Lease, lane: str) -> bool:
    """Move the item to another lane. Return True if an earlier item of that lane has to run first."""
    behind = await connection.fetchval(
        f"""
        WITH moved AS (UPDATE queue_items SET lane = $3 WHERE id = $1)
        SELECT EXISTS (
            SELECT FROM queue_items
            WHERE id = {_FIRST.format(queue="$2", lane="$3")} AND lane = $3 AND id < $1
        )
        """,
        lease.item_id,
        lease.queue,
        lane,
    )
    return bool(behind)


async def complete(connection: Connection, lease: Lease, result: Any = None) -> None:
    """Mark an item as done, in the transaction of its effect. LeaseLost rolls that effect back."""
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET state = 'done', finished_at = now(), result = $3, error = NULL,"
        " holder = NULL, lease_until = NULL",
        result,
    )


async def complete_all(
    connection: Connection, done: Sequence[tuple[Lease, Any]]
) -> dict[UUID, bool]:
    """Mark items as done whose effects are committed.

    Return the ids whose lease was still current, each with whether another item of its lane waits.
    """
    rows = await connection.fetch(
        """
        UPDATE queue_items AS item
        SET state = 'done', finished_at = now(), result = held.result, error = NULL,
            holder = NULL, lease_until = NULL
        FROM unnest($1::uuid[], $2::bigint[], $3::jsonb[]) AS held(id, fence, result)
        WHERE item.id = held.id AND item.fence = held.fence AND item.state = 'leased'
        RETURNING item.id, EXISTS (
            SELECT FROM queue_items AS next
            WHERE next.queue = item.queue AND next.lane = item.lane AND next.state = 'ready'
        ) AS followed
        """,
        [lease.item_id for lease, _ in done],
        [lease.fence for lease, _ in done],
        [result for _, result in done],
    )
    return {row["id"]: row["followed"] for row in rows}


async def retry(connection: Connection, lease: Lease, error: str, delay: timedelta) -> None:
    """Return an item to the queue for another attempt, or make it a dead letter if none is left."""
    if lease.is_last_attempt:
        await dead_letter(connection, lease, error)
        return
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET state = 'ready', run_after = now() + $3, error = $4, aside = true,"
        " waits_since = NULL, holder = NULL, lease_until = NULL",
        delay,
        error,
    )


async def wait(
    connection: Connection,
    lease: Lease,
    error: str,
    shortest: timedelta = SHORTEST_PAUSE,
    longest: timedelta = LONGEST_PAUSE,
) -> None:
    """Return an item to the queue because a peer is unavailable. This does not count as an attempt.

    The pauses grow with the time that the item waits, up to the longest; after a day it becomes a dead
    letter. Time in which no worker ran does not count.
    """
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET error = $3, holder = NULL, lease_until = NULL,"
        " attempts = attempts - 1, waits_since = coalesce(waits_since, now()),"
        " state = CASE WHEN waits_since < now() - $4::interval THEN 'dead' ELSE 'ready' END,"
        " finished_at = CASE WHEN waits_since < now() - $4::interval THEN now() END,"
        " run_after = now() + (0.75 + random() / 2)"
        "   * least($5::interval, greatest($6::interval, (now() - waits_since) / 4))",
        error,
        LONGEST_WAIT,
        max(longest, shortest),
        shortest,
        and_lane=True,
    )


async def postpone(
    connection: Connection, lease: Lease, why: str, until: datetime, aside: bool = True
) -> None:
    """Return an item to the queue until a given time. This does not count as an attempt.

    The items behind it in its lane wait for it unless it steps aside."""
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET state = 'ready', run_after = $3, error = $4, aside = $5,"
        " waits_since = NULL, attempts = attempts - 1, holder = NULL, lease_until = NULL",
        until,
        why,
        aside,
        and_lane=not aside,
    )


async def make_due(connection: Connection, queue: str, *, kept: bool = False) -> int:
    """Make the waiting items of the queue due now, because what they wait for may be back; with ``kept``
    also those that wait for the owner's word. Return their number."""
    rows = await connection.fetch(
        "UPDATE queue_items SET run_after = now() WHERE queue = $1 AND state = 'ready'"
        " AND run_after > now() AND error IS NOT NULL AND ($2 OR error <> $3) RETURNING 1",
        queue,
        kept,
        KEPT,
    )
    await notify(connection, queue)
    return len(rows)


async def count_kept(connection: Connection, queue: str) -> int:
    """Return the number of items that wait for the owner's word."""
    found: int = await connection.fetchval(
        "SELECT count(*) FROM queue_items WHERE queue = $1 AND state = 'ready' AND error = $2",
        queue,
        KEPT,
    )
    return found


async def dead_letter(connection: Connection, lease: Lease, error: str) -> None:
    """Make an item a dead letter after a permanent failure, and wake the notices."""
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET state = 'dead', finished_at = now(), error = $3,"
        " holder = NULL, lease_until = NULL",
        error,
    )
    await notify(connection, DEAD)


async def release(connection: Connection, lease: Lease, why: str | None = None) -> None:
    """Return an item to its old place in the queue. This does not count as an attempt."""
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET state = 'ready', attempts = attempts - 1,"
        " error = coalesce($3, error), holder = NULL, lease_until = NULL",
        why,
    )
    await notify(connection, lease.queue)


async def extend(
    connection: Connection, leases: Sequence[Lease], duration: timedelta = LEASE
) -> set[UUID]:
    """Extend leases. Return the ids of the items whose lease was still current."""
    rows = await connection.fetch(
        """
        UPDATE queue_items AS item SET lease_until = now() + $3
        FROM unnest($1::uuid[], $2::bigint[]) AS held(id, fence)
        WHERE item.id = held.id AND item.fence = held.fence AND item.state = 'leased'
        RETURNING item.id
        """,
        [lease.item_id for lease in leases],
        [lease.fence for lease in leases],
        duration,
    )
    return {row["id"] for row in rows}


async def recover(connection: Connection, grace: timedelta = timedelta(0)) -> int:
    """Release items whose lease has expired or whose holder is dead, and return their number.

    A living holder keeps an advisory lock on its own number (``queue.listener``), which the server drops
    when the process dies, so after a crash the items are released at once. The lease's end, plus
    ``grace``, is for a holder that is frozen or cut off. Items without attempts left become dead letters.
    Rows that a frozen transaction has locked are skipped.
    """
    rows = await connection.fetch(
        """
        WITH lost AS (
            SELECT id FROM queue_items
            WHERE state = 'leased' AND (
                lease_until < now() - $1::interval
                OR NOT EXISTS (
                    SELECT FROM pg_locks
                    WHERE locktype = 'advisory' AND granted
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                      AND objsubid = 1
                      AND ((classid::bigint << 32) | objid::bigint) = holder
                )
            )
            FOR UPDATE SKIP LOCKED
        )
        UPDATE queue_items AS item
        SET state = CASE WHEN attempts >= max_attempts THEN 'dead' ELSE 'ready' END,
            finished_at = CASE WHEN attempts >= max_attempts THEN now() END,
            error = coalesce(error, 'the worker died or lost its lease'),
            holder = NULL, lease_until = NULL
        FROM lost WHERE item.id = lost.id
        RETURNING item.queue, item.state
        """,
        grace,
    )
    for queue, items in Counter(row["queue"] for row in rows).items():
        count_lease_expiries(queue, items)
        await notify(connection, queue)
    if any(row["state"] == DEAD for row in rows):
        await notify(connection, DEAD)
    return len(rows)


async def shift_times(connection: Connection, jump: timedelta) -> int:
    """Move the times of open items along with a wall clock that has jumped. Return their number.

    A lease and a wait keep their length. After a jump back, items are due as soon as they would have been;
    after a jump ahead they may be due earlier, which does no harm.
    """
    rows = await connection.fetch(
        """
        UPDATE queue_items
        SET lease_until = lease_until + $1, waits_since = waits_since + $1,
            run_after = CASE WHEN $1 < interval '0' THEN run_after + $1 ELSE run_after END
        WHERE state IN ('ready', 'leased') RETURNING queue
        """,
        jump,
    )
    for queue in {row["queue"] for row in rows}:
        await notify(connection, queue)
    return len(rows)


async def is_full(connection: Connection, queue: str, capacity: int) -> bool:
    """Return whether ``capacity`` items wait for a worker. Items with another error than BUSY wait for a
    peer or a later time, and do not count."""
    found = await connection.fetchval(
        """
        SELECT count(*) FROM (
            SELECT FROM queue_items
            WHERE queue = $1
              AND (state = 'ready' AND error IS NULL AND run_after <= statement_timestamp()
                   OR state IN ('ready', 'leased') AND error = $3)
            LIMIT $2
        ) AS due
        """,
        queue,
        capacity,
        BUSY,
    )
    return bool(found >= capacity)


async def depths(connection: Connection) -> dict[str, dict[str, int]]:
    """Count the ready, leased and dead items of each queue."""
    # One SELECT per state, because each state has an index of its own; finished items are not read.
    rows = await connection.fetch(
        """
        SELECT queue, 'ready' AS state, count(*) AS items FROM queue_items
        WHERE state = 'ready' GROUP BY queue
        UNION ALL
        SELECT queue, 'leased', count(*) FROM queue_items WHERE state = 'leased' GROUP BY queue
        UNION ALL
        SELECT queue, 'dead', count(*) FROM queue_items WHERE state = 'dead' GROUP BY queue
        """
    )
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["queue"], {})[row["state"]] = row["items"]
    return found


async def _settle(
    connection: Connection, lease: Lease, update: str, *arguments: Any, and_lane: bool = False
) -> None:
    """Apply the update if this claim is still the current one; raise LeaseLost otherwise."""
    statement = f"{update} WHERE id = $1 AND fence = $2 AND state = 'leased'"
    settled = await connection.fetchval(
        _AND_LANE.format(head=statement, no_worker=_NO_WORKER)
        if and_lane
        else f"{statement} RETURNING true",
        lease.item_id,
        lease.fence,
        *arguments,
    )
    if not settled:
        raise LeaseLost(
            f"{lease.queue} item {lease.key} was taken over after attempt {lease.attempt}"
        )
