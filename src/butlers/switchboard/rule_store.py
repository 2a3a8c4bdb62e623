"""The owner's triage rules, and what past decisions suggest as further ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from butlers.db.database import Connection
from butlers.domain.ids import uuid7
from butlers.domain.rule import RuleAction, RuleKind, Suggestion, TriageRule


def _from_row(row: asyncpg.Record) -> TriageRule:
    return TriageRule(
        rule_id=row["id"],
        kind=RuleKind(row["kind"]),
        value=row["value"],
        action=RuleAction(row["action"]),
        target=row["target"],
        header=row["header"],
        channel=row["channel"],
        position=row["position"],
        note=row["note"],
    )


async def read_rules(connection: Connection) -> list[TriageRule]:
    """All of them, the first that matches first."""
    rows = await connection.fetch("SELECT * FROM triage_rules ORDER BY position, created_at, id")
    return [_from_row(row) for row in rows]


async def list_rules(connection: Connection) -> list[dict[str, Any]]:
    """All of them, with how often each has acted."""
    rows = await connection.fetch(
        """
        SELECT rule.*, count(message.request_id) AS hits, max(message.received_at) AS last_hit_at
        FROM triage_rules AS rule LEFT JOIN message_inbox AS message ON message.rule_id = rule.id
        GROUP BY rule.id ORDER BY position, created_at, rule.id
        """
    )
    return [dict(row) for row in rows]


async def add_rule(connection: Connection, rule: TriageRule) -> None:
    await connection.execute(
        """
        INSERT INTO triage_rules (id, position, kind, value, header, channel, action, target, note)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        """,
        rule.rule_id,
        rule.position,
        rule.kind,
        rule.value,
        rule.header,
        rule.channel,
        rule.action,
        rule.target,
        rule.note,
    )


async def remove_rule(connection: Connection, rule_id: UUID) -> TriageRule | None:
    row = await connection.fetchrow("DELETE FROM triage_rules WHERE id = $1 RETURNING *", rule_id)
    return _from_row(row) if row else None


async def suggest_rules(connection: Connection, since: datetime, at_least: int) -> list[Suggestion]:
    """Senders whose messages, so many since then, a model has always given to the same butler."""
    rows = await connection.fetch(
        """
        SELECT channel, sender, min(target) AS target, count(DISTINCT request_id) AS messages
        FROM message_inbox JOIN route_decisions USING (request_id)
        WHERE received_at >= $1 AND rule = 'classified' AND NOT 'owner' = ANY(sender_roles)
          AND NOT EXISTS (SELECT FROM triage_rules AS rule WHERE rule.kind = 'sender'
                          AND lower(rule.value) = lower(sender))
        GROUP BY channel, sender
        HAVING count(DISTINCT target) = 1 AND count(DISTINCT request_id) >= $2
        ORDER BY messages DESC, channel, sender
        """,
        since,
        at_least,
    )
    return [
        Suggestion(
            TriageRule(
                uuid7(),
                RuleKind.SENDER,
                row["sender"],
                RuleAction.ROUTE,
                target=row["target"],
                channel=row["channel"],
                note=f"suggested by {row['messages']} decisions",
            ),
            row["messages"],
        )
        for row in rows
    ]
