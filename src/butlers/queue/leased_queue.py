"""The leased queue: one primitive that carries inbox, routes, notifications, deliveries and schedules.

An item is claimed under a lease. Each claim raises the item's fence; completing, failing or extending
needs the fence of the claim, so a worker that was frozen past its lease can not finish what another has
taken over. Races are settled in the statements, and every time in them is the database's.

Items of one lane are worked on one at a time and in their order: one stays back while an earlier one of
its lane is there. Only one that failed and waits for its next attempt steps aside, and holds up nobody.

    ready -> leased -> done
       ^        |----> dead          (attempts used up, or a permanent failure)
       '--------'                    (retry after a delay; a planned restart, or a wait for somebody
                                      who is away, gives the attempt back)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.errors import LeaseLost
from butlers.domain.ids import uuid7
from butlers.wire.telemetry import count_lease_expiries

DEAD = "dead"  # announced as if it were a queue, to whoever tells of dead letters
LEASE = timedelta(seconds=30)
MAX_ATTEMPTS = 8
LONGEST_WAIT = timedelta(days=1)
# Due for so long, an item found nobody at work: the machine was off, and that is no waiting of its own.
NOBODY_THERE = timedelta(hours=1)
SHORTEST_PAUSE, LONGEST_PAUSE = timedelta(seconds=0.5), timedelta(seconds=30)
_NOBODY_THERE = f"interval '{NOBODY_THERE.total_seconds():.0f} seconds'"


# Whose turn it is in a lane, or in the next one where it is empty. Asked for in the order of the index of
# lanes, because a plan that looks anywhere else reads what was done long ago, for every item again.
_FIRST = """(
    SELECT first.id FROM queue_items AS first
    WHERE first.queue = {queue} AND first.lane >= {lane} AND first.state IN ('ready', 'leased')
      AND (first.state = 'leased' OR first.run_after <= statement_timestamp() OR NOT first.aside)
    ORDER BY first.lane, first.id LIMIT 1
)"""

# One that waits and keeps its place takes along those of its lane that are behind it. They could not be
# claimed before it anyway, and each claim would have to look at every one of them. Where it waits for
# somebody who is away, so do they: the day that each may wait begins now, not when its own turn comes.
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
            CASE WHEN item.run_after < now() - {nobody_there} THEN now()
            ELSE coalesce(item.waits_since, now()) END END
    FROM behind WHERE item.id = behind.id
)
SELECT true FROM head
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """One claim of one item. ``fence`` is what makes it the current one."""

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
    """Put an item in, once per key. Workers wake when the caller's transaction commits. Its id says where
    in its lane it stands: behind all others, if none is given.

    Due from the statement's time, not the transaction's: items of one transaction keep their order.
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
    return bool(created)


async def notify(connection: Connection, queue: str) -> None:
    """Wake this schema's workers. NOTIFY has no permissions, so it carries the queue's name only."""
    await connection.execute("SELECT pg_notify('butlers:' || current_schema(), $1)", queue)


async def claim(
    connection: Connection,
    queue: str,
    holder: int,
    *,
    limit: int = 1,
    lease: timedelta = LEASE,
    below: int = -1,
) -> list[Lease]:
    """Take up to ``limit`` due items, the most urgent first, each for one holder.

    ``below`` looks only at what is less urgent than that priority, which would else never be its turn.
    """
    # The limit is part of the text: for one that it does not know, the server finds no plan good enough to
    # keep, and planning takes longer than claiming. And "<=" where "=" would do, because of an equality it
    # thinks that it is rare, and reads and sorts everything that waits.
    rows = await connection.fetch(
        f"""
        UPDATE queue_items
        SET state = 'leased', holder = $2, lease_until = now() + $3,
            attempts = attempts + 1, fence = fence + 1, aside = false,
            waits_since = CASE WHEN run_after >= now() - {_NOBODY_THERE} THEN waits_since END
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
    """Go on in another lane. True when an earlier item of that one has to come first."""
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
    """Finish an item, in the transaction of its effect. LeaseLost rolls that effect back."""
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET state = 'done', finished_at = now(), result = $3, error = NULL,"
        " holder = NULL, lease_until = NULL",
        result,
    )


async def complete_all(connection: Connection, done: Sequence[tuple[Lease, Any]]) -> set[UUID]:
    """Finish items whose effects are committed already; returns the ids of those that still were ours."""
    rows = await connection.fetch(
        """
        UPDATE queue_items AS item
        SET state = 'done', finished_at = now(), result = held.result, error = NULL,
            holder = NULL, lease_until = NULL
        FROM unnest($1::uuid[], $2::bigint[], $3::jsonb[]) AS held(id, fence, result)
        WHERE item.id = held.id AND item.fence = held.fence AND item.state = 'leased'
        RETURNING item.id
        """,
        [lease.item_id for lease, _ in done],
        [lease.fence for lease, _ in done],
        [result for _, result in done],
    )
    return {row["id"] for row in rows}


async def retry(connection: Connection, lease: Lease, error: str, delay: timedelta) -> None:
    """Give an item back for another attempt, or to the dead letter when there is none left."""
    if lease.is_last_attempt:
        await bury(connection, lease, error)
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
    """Give an item back because somebody else is away: that is no attempt of the item's.

    The pauses grow with the time that it waits, up to the longest; after a day of that it goes to the
    dead letter. A time in which nobody tried does not count.
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
    """Give an item back for a certain time. That is no attempt of the item's either. One that steps aside
    has nobody in its lane waiting for it until then."""
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


async def hurry(connection: Connection, queue: str) -> None:
    """Whoever the queue waits for may be back: make everything that waits due now."""
    await connection.execute(
        "UPDATE queue_items SET run_after = now()"
        " WHERE queue = $1 AND state = 'ready' AND run_after > now() AND error IS NOT NULL",
        queue,
    )
    await notify(connection, queue)


async def bury(connection: Connection, lease: Lease, error: str) -> None:
    """A permanent failure: to the dead letter, at once and visibly."""
    await _settle(
        connection,
        lease,
        "UPDATE queue_items SET state = 'dead', finished_at = now(), error = $3,"
        " holder = NULL, lease_until = NULL",
        error,
    )
    await notify(connection, DEAD)


async def release(connection: Connection, lease: Lease, why: str | None = None) -> None:
    """Put an item back untouched, in its old place. A planned restart is not an attempt, and neither is
    a turn that came too early."""
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
    """Keep leases alive; returns the ids of those that are still ours."""
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
    """Make items claimable again whose lease has run out or whose holder is dead.

    A living holder keeps an advisory lock on its own number (``store.listener``), which the server drops
    the moment the process dies. So a crash costs no waiting; the lease's end is for a holder that is
    frozen or cut off, and ``grace`` is what it gets beyond it. Items whose attempts are used up go to the
    dead letter instead. Nobody waits here for one that is frozen in the middle of a transaction.
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


async def is_full(connection: Connection, queue: str, capacity: int) -> bool:
    """Whether so many items are due that no worker has looked at. One with a word of why it is still here
    waits for somebody else, or for a better day, and does not count."""
    found = await connection.fetchval(
        """
        SELECT count(*) FROM (
            SELECT FROM queue_items
            WHERE queue = $1 AND state = 'ready' AND run_after <= statement_timestamp()
              AND error IS NULL
            LIMIT $2
        ) AS due
        """,
        queue,
        capacity,
    )
    return bool(found >= capacity)


async def depths(connection: Connection) -> dict[str, dict[str, int]]:
    """How many items wait, run or lie dead, by queue."""
    # One arm per state, because each has an index of its own; what is done is never looked at.
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
    """Apply a final statement to the item if, and only if, this claim is still the current one."""
    statement = f"{update} WHERE id = $1 AND fence = $2 AND state = 'leased'"
    settled = await connection.fetchval(
        _AND_LANE.format(head=statement, nobody_there=_NOBODY_THERE)
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
