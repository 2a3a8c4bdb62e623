"""Route decisions: which butlers a message goes to and why, one decision for each butler's part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.message import RouteDecision


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision and its progress."""

    decision: RouteDecision
    routed_at: datetime | None = None
    ended_well: bool | None = (
        None  # None: not ended, or not reported because no other part waits for it
    )


def _from_row(row: asyncpg.Record) -> StoredDecision:
    decision = RouteDecision(
        row["target"], row["rule"], row["reason"], row["part"], row["after_previous"]
    )
    return StoredDecision(decision, row["routed_at"], row["ended_well"])


async def read_decisions(connection: Connection, request_id: UUID) -> list[StoredDecision]:
    """Return the decisions of a message in order; none before it is decided."""
    rows = await connection.fetch(
        """
        SELECT decision.* FROM route_decisions AS decision JOIN message_inbox USING (request_id)
        WHERE request_id = $1 AND message_inbox.decided_at IS NOT NULL ORDER BY position
        """,
        request_id,
    )
    return [_from_row(row) for row in rows]


async def propose(connection: Connection, request_id: UUID, decision: RouteDecision) -> bool:
    """Add a decision to a message that is not decided yet. A butler gets one part at most."""
    added = await connection.fetchval(
        """
        INSERT INTO route_decisions (request_id, target, position, rule, reason, part, after_previous)
        SELECT request_id, $2, (SELECT count(*) FROM route_decisions WHERE request_id = $1),
               $3, $4, $5, $6
        FROM message_inbox WHERE request_id = $1 AND decided_at IS NULL
        ON CONFLICT (request_id, target) DO NOTHING RETURNING true
        """,
        request_id,
        decision.target,
        decision.rule,
        decision.reason,
        decision.part,
        decision.after_previous,
    )
    return bool(added)


async def withdraw(connection: Connection, request_id: UUID) -> None:
    """Delete the proposals for a message that is not decided yet."""
    await connection.execute(
        "DELETE FROM route_decisions USING message_inbox AS message"
        " WHERE route_decisions.request_id = $1 AND message.request_id = $1"
        " AND message.decided_at IS NULL",
        request_id,
    )


async def reopen(connection: Connection, target: str) -> int:
    """Reopen the messages that wait only for this butler and were not routed yet."""
    rows = await connection.fetch(
        """
        WITH alone AS (
            SELECT request_id FROM route_decisions AS this
            WHERE target = $1 AND routed_at IS NULL AND NOT EXISTS (
                SELECT FROM route_decisions AS other
                WHERE other.request_id = this.request_id AND other.target <> $1
            )
        ),
        gone AS (DELETE FROM route_decisions WHERE request_id IN (SELECT request_id FROM alone))
        UPDATE message_inbox SET decided_at = NULL
        WHERE request_id IN (SELECT request_id FROM alone) RETURNING 1
        """,
        target,
    )
    return len(rows)


async def reopen_message(connection: Connection, request_id: UUID, reason: str) -> None:
    """Reopen the decision on one message, and store the reason."""
    await connection.execute("DELETE FROM route_decisions WHERE request_id = $1", request_id)
    await connection.execute(
        "UPDATE message_inbox SET decided_at = NULL, state_reason = $2 WHERE request_id = $1",
        request_id,
        reason,
    )


async def settle(
    connection: Connection, request_id: UUID, decisions: Sequence[RouteDecision] = ()
) -> list[StoredDecision]:
    """Decide a message: by its proposals, or without any by ``decisions``. A decided message stays."""
    await connection.execute(
        "SELECT FROM message_inbox WHERE request_id = $1 FOR UPDATE", request_id
    )
    proposed = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM route_decisions WHERE request_id = $1)", request_id
    )
    if not proposed:
        for decision in decisions:
            await propose(connection, request_id, decision)
        proposed = bool(decisions)
    if proposed:
        await connection.execute(
            "UPDATE message_inbox SET decided_at = coalesce(decided_at, clock_timestamp())"
            " WHERE request_id = $1",
            request_id,
        )
    return await read_decisions(connection, request_id)


async def mark_routed(
    connection: Connection, request_id: UUID, target: str, when: datetime
) -> None:
    await connection.execute(
        "UPDATE route_decisions SET routed_at = coalesce(routed_at, $3)"
        " WHERE request_id = $1 AND target = $2",
        request_id,
        target,
        when,
    )


async def mark_ended(connection: Connection, request_id: UUID, target: str, *, well: bool) -> bool:
    """Store whether a part ended well; a later report replaces it. Return False without such a part."""
    found = await connection.fetchval(
        "UPDATE route_decisions SET ended_at = now(), ended_well = $3"
        " WHERE request_id = $1 AND target = $2 RETURNING true",
        request_id,
        target,
        well,
    )
    return bool(found)


async def earlier_targets(
    connection: Connection, conversation: str, request_id: UUID, since: datetime
) -> set[str]:
    """Return the targets of the other messages of a conversation."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT target FROM message_inbox JOIN route_decisions USING (request_id)
        WHERE conversation = $1 AND received_at >= $3 AND request_id <> $2
        """,
        conversation,
        request_id,
        since,
    )
    return {row["target"] for row in rows}


async def targets_of_event(
    connection: Connection, channel: str, endpoint: str, event_id: str
) -> set[str]:
    """Return the targets of the message with this platform id."""
    rows = await connection.fetch(
        """
        SELECT target FROM message_inbox JOIN route_decisions USING (request_id)
        WHERE channel = $1 AND endpoint = $2 AND event_id = $3
        """,
        channel,
        endpoint,
        event_id,
    )
    return {row["target"] for row in rows}
