"""The Switchboard's inbox: every message that was accepted, and where it went and why."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from butlers.domain.message import InboundEnvelope
from butlers.domain.request import RequestContext
from butlers.domain.route import RouteDecision
from butlers.store.database import Connection


async def store_message(
    connection: Connection, request: RequestContext, envelope: InboundEnvelope
) -> UUID | None:
    """Keep a new message. For one that is known already: its request id, and nothing is written."""
    created = await connection.fetchval(
        """
        INSERT INTO message_inbox (request_id, dedupe_key, channel, endpoint, sender, thread, text,
                                   raw, content_hash, policy_tier, trace_id, observed_at, received_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        ON CONFLICT (dedupe_key) DO NOTHING RETURNING true
        """,
        request.request_id,
        envelope.dedupe_key,
        request.source_channel,
        request.source_endpoint_identity,
        request.source_sender_identity,
        request.source_thread_identity,
        envelope.payload.normalized_text,
        envelope.payload.raw,
        envelope.content_hash,
        envelope.control.policy_tier,
        request.trace_id,
        envelope.event.observed_at,
        request.received_at,
    )
    if created:
        return None
    known: UUID = await connection.fetchval(
        "SELECT request_id FROM message_inbox WHERE dedupe_key = $1", envelope.dedupe_key
    )
    return known


async def read_decision(connection: Connection, request_id: UUID) -> RouteDecision | None:
    row = await connection.fetchrow(
        "SELECT route_target, route_rule, route_reason FROM message_inbox WHERE request_id = $1",
        request_id,
    )
    if row is None or row["route_target"] is None:
        return None
    return RouteDecision(row["route_target"], row["route_rule"], row["route_reason"])


async def store_decision(
    connection: Connection, request_id: UUID, decision: RouteDecision
) -> RouteDecision:
    """Keep the first decision. A retry of the message finds it and goes the same way."""
    await connection.execute(
        """
        UPDATE message_inbox SET route_target = $2, route_rule = $3, route_reason = $4
        WHERE request_id = $1 AND route_target IS NULL
        """,
        request_id,
        decision.target,
        decision.rule,
        decision.reason,
    )
    return await read_decision(connection, request_id) or decision


async def mark_routed(connection: Connection, request_id: UUID, when: datetime) -> None:
    await connection.execute(
        "UPDATE message_inbox SET routed_at = coalesce(routed_at, $2) WHERE request_id = $1",
        request_id,
        when,
    )
