"""Where each message went and why: one decision for each butler that has a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.route import RouteDecision


@dataclass(frozen=True, slots=True)
class Leg:
    """One decision, and how far it has come."""

    decision: RouteDecision
    routed_at: datetime | None = None
    ended_well: bool | None = None  # None: not ended, or nobody waits to hear it


def _from_row(row: asyncpg.Record) -> Leg:
    decision = RouteDecision(
        row["target"], row["rule"], row["reason"], row["part"], row["after_previous"]
    )
    return Leg(decision, row["routed_at"], row["ended_well"])


async def read_legs(connection: Connection, request_id: UUID) -> list[Leg]:
    """In their order, once the message is decided; before that, none."""
    rows = await connection.fetch(
        """
        SELECT decision.* FROM route_decisions AS decision JOIN message_inbox USING (request_id)
        WHERE request_id = $1 AND message_inbox.decided_at IS NOT NULL ORDER BY position
        """,
        request_id,
    )
    return [_from_row(row) for row in rows]


async def propose(connection: Connection, request_id: UUID, decision: RouteDecision) -> bool:
    """Add a decision to a message that is still being decided; one butler has one part of it."""
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
    """Forget what was proposed for a message that is not decided yet."""
    await connection.execute(
        "DELETE FROM route_decisions USING message_inbox AS message"
        " WHERE route_decisions.request_id = $1 AND message.request_id = $1"
        " AND message.decided_at IS NULL",
        request_id,
    )


async def reopen(connection: Connection, target: str) -> int:
    """Have those decided again that wait for one butler alone, and were not handed over yet."""
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


async def reopen_message(connection: Connection, request_id: UUID, why: str) -> None:
    """Have one message decided again, and keep why."""
    await connection.execute("DELETE FROM route_decisions WHERE request_id = $1", request_id)
    await connection.execute(
        "UPDATE message_inbox SET decided_at = NULL, state_reason = $2 WHERE request_id = $1",
        request_id,
        why,
    )


async def settle(
    connection: Connection, request_id: UUID, decisions: Sequence[RouteDecision] = ()
) -> list[Leg]:
    """End the deciding: with what was proposed, or where nothing was, with these. The first end counts."""
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
    return await read_legs(connection, request_id)


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
    """Keep how a part ended, the last word counts; False when there is no such part."""
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
    """Whom the other messages of a conversation went to."""
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
    """Whom the message with this platform id went to."""
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
