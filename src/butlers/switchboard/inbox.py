"""The table ``message_inbox``: every message that came in, and the state in which it was stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.db.database import Connection, lock_until_commit
from butlers.domain.message import (
    Attachment,
    InboundEnvelope,
    InboxItem,
    PolicyTier,
    RequestContext,
    joined,
)
from butlers.wire.codec import decode, encode


class MessageState(StrEnum):
    ACCEPTED = "accepted"
    HELD = "held"  # until the owner says who the sender is
    SKIPPED = "skipped"  # by one of the owner's rules; it is stored
    NOTED = "noted"  # without its content


@dataclass(frozen=True, slots=True)
class HeldTotals:
    """Number of held messages, and their size in bytes with files."""

    messages: int
    size: int


async def store_message(
    connection: Connection,
    request: RequestContext,
    envelope: InboundEnvelope,
    state: MessageState,
    reason: str | None,
    rule_id: UUID | None,
    window: timedelta,
) -> UUID | None:
    """Store a new message and return None. For a duplicate, return the stored request id."""
    key = envelope.dedupe_key
    if key is None:
        known = await _same_content(connection, request, envelope, window)
        if known is not None:
            return known
        key = joined("content", str(request.request_id))
    created = await connection.fetchval(
        """
        INSERT INTO message_inbox (request_id, dedupe_key, channel, endpoint, sender, thread, text,
                                   raw, content_hash, policy_tier, trace_id, observed_at, received_at,
                                   event_id, reply_to, conversation, sender_roles, attachments, state,
                                   state_reason, rule_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                $20, $21)
        ON CONFLICT (dedupe_key) DO NOTHING RETURNING true
        """,
        request.request_id,
        key,
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
        request.source_event_identity,
        envelope.event.external_reply_to,
        request.conversation,
        list(request.sender_roles),
        [encode(file) for file in envelope.payload.attachments],
        state,
        reason,
        rule_id,
    )
    if created:
        return None
    found: UUID = await connection.fetchval(
        "SELECT request_id FROM message_inbox WHERE dedupe_key = $1", key
    )
    return found


async def store_history(
    connection: Connection,
    messages: Sequence[tuple[RequestContext, InboundEnvelope]],
    reason: str,
) -> int:
    """Store old messages as skipped, without a look at rules, and return how many were new."""
    by_key = {envelope.dedupe_key: (request, envelope) for request, envelope in messages}
    known = await connection.fetch(
        "SELECT dedupe_key FROM message_inbox WHERE dedupe_key = ANY($1::text[])", list(by_key)
    )
    new = {key: by_key[key] for key in by_key.keys() - {row["dedupe_key"] for row in known}}
    await connection.executemany(
        """
        INSERT INTO message_inbox (request_id, dedupe_key, channel, endpoint, sender, thread, text,
                                   raw, content_hash, policy_tier, trace_id, observed_at, received_at,
                                   event_id, reply_to, conversation, state, state_reason)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
        ON CONFLICT (dedupe_key) DO NOTHING
        """,
        [
            (
                request.request_id,
                key,
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
                request.source_event_identity,
                envelope.event.external_reply_to,
                request.conversation,
                MessageState.SKIPPED,
                reason,
            )
            for key, (request, envelope) in new.items()
        ],
    )
    return len(new)


async def find_known(connection: Connection, envelope: InboundEnvelope) -> UUID | None:
    """Return the request id of the message that has the same id at its source, or None."""
    found: UUID | None = await connection.fetchval(
        "SELECT request_id FROM message_inbox WHERE dedupe_key = $1", envelope.dedupe_key
    )
    return found


async def _same_content(
    connection: Connection, request: RequestContext, envelope: InboundEnvelope, window: timedelta
) -> UUID | None:
    """Find a recent message with the same text and sender, for sources without message ids."""
    lock = joined(request.conversation, request.source_sender_identity, envelope.content_hash)
    await lock_until_commit(connection, lock)
    found: UUID | None = await connection.fetchval(
        """
        SELECT request_id FROM message_inbox
        WHERE content_hash = $1 AND received_at > $2 AND event_id IS NULL
          AND conversation = $3 AND sender = $4 AND dedupe_key LIKE 'content:%'
        ORDER BY received_at DESC LIMIT 1
        """,
        envelope.content_hash,
        request.received_at - window,
        request.conversation,
        request.source_sender_identity,
    )
    return found


def item_from_row(row: Mapping[str, Any]) -> InboxItem:
    request = RequestContext(
        request_id=row["request_id"],
        received_at=row["received_at"],
        source_channel=row["channel"],
        source_endpoint_identity=row["endpoint"],
        source_sender_identity=row["sender"],
        source_thread_identity=row["thread"],
        source_event_identity=row["event_id"],
        sender_roles=tuple(row["sender_roles"]),
        trace_id=row["trace_id"],
    )
    files = tuple(decode(Attachment, file) for file in row["attachments"])
    return InboxItem(request, row["text"], PolicyTier(row["policy_tier"]), row["reply_to"], files)


async def get_message(connection: Connection, request_id: UUID) -> dict[str, Any] | None:
    row = await connection.fetchrow("SELECT * FROM message_inbox WHERE request_id = $1", request_id)
    return dict(row) if row else None


async def measure_held(connection: Connection, request_id: UUID) -> tuple[HeldTotals, HeldTotals]:
    """Return the totals without this message and with it.

    Other measurements wait until the transaction ends, so that two messages cannot take the last place.
    """
    await lock_until_commit(connection, "held")
    row = await connection.fetchrow(
        """
        SELECT count(*) FILTER (WHERE request_id <> $1) AS others,
               coalesce(sum(size) FILTER (WHERE request_id <> $1), 0)::bigint AS size_of_others,
               count(*) AS all, coalesce(sum(size), 0)::bigint AS size_of_all
        FROM message_inbox, LATERAL (
            SELECT octet_length(text) + coalesce(pg_column_size(raw), 0)
                   + coalesce(sum((file ->> 'size_bytes')::bigint), 0) AS size
            FROM jsonb_array_elements(attachments) AS file
        ) AS weight
        WHERE state = 'held'
        """,
        request_id,
    )
    assert row is not None
    others = HeldTotals(row["others"], row["size_of_others"])
    return others, HeldTotals(row["all"], row["size_of_all"])


async def list_held(connection: Connection) -> list[dict[str, Any]]:
    """Return the unknown senders with the number of their held messages."""
    rows = await connection.fetch(
        """
        SELECT channel, sender, count(*) AS messages, min(received_at) AS since,
               (array_agg(left(text, 200) ORDER BY received_at DESC))[1] AS latest
        FROM message_inbox WHERE state = 'held' GROUP BY channel, sender ORDER BY since
        """
    )
    return [dict(row) for row in rows]


async def end_message(
    connection: Connection,
    request_id: UUID,
    state: MessageState,
    reason: str | None,
    rule_id: UUID | None,
) -> None:
    """Set the final state of a message. A message that is only noted loses its content."""
    await connection.execute(
        """
        UPDATE message_inbox
        SET state = $2, state_reason = $3, rule_id = $4,
            text = CASE WHEN $2 = 'noted' THEN '' ELSE text END,
            raw = CASE WHEN $2 = 'noted' THEN NULL ELSE raw END,
            attachments = CASE WHEN $2 = 'noted' THEN '[]' ELSE attachments END
        WHERE request_id = $1
        """,
        request_id,
        state,
        reason,
        rule_id,
    )


async def release_held(
    connection: Connection, channel: str, sender: str, state: MessageState, roles: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Set another state for a sender's held messages, and return them oldest first."""
    rows = await connection.fetch(
        """
        UPDATE message_inbox SET state = $3, state_reason = NULL, sender_roles = $4
        WHERE channel = $1 AND sender = $2 AND state = 'held' RETURNING *
        """,
        channel,
        sender,
        state,
        list(roles),
    )
    return sorted(
        (dict(row) for row in rows), key=lambda row: (row["received_at"], row["request_id"])
    )


async def search_messages(
    connection: Connection,
    patterns: list[str],
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> list[dict[str, Any]]:
    """Return the messages, of all butlers, whose text matches every ILIKE pattern, newest first."""
    query = """
        SELECT request_id, channel, sender, text, state, received_at FROM message_inbox
        WHERE text ILIKE ALL ($1::text[])
          AND ($2::timestamptz IS NULL OR received_at >= $2)
          AND ($3::timestamptz IS NULL OR received_at < $3)
        ORDER BY received_at DESC, request_id DESC LIMIT $4
        """
    return [dict(row) for row in await connection.fetch(query, patterns, since, until, limit)]


async def list_messages(
    connection: Connection, query: str, before: datetime | None, limit: int
) -> list[dict[str, Any]]:
    """Return messages whose text or sender contains the query, newest first."""
    rows = await connection.fetch(
        """
        SELECT request_id, channel, sender, left(text, 500) AS text, state, received_at,
               jsonb_array_length(attachments) AS attachments,
               ARRAY(SELECT target FROM route_decisions AS decision
                     WHERE decision.request_id = message_inbox.request_id ORDER BY position) AS targets
        FROM message_inbox
        WHERE ($1 = '' OR position(lower($1) IN lower(sender || ' ' || text)) > 0)
          AND ($2::timestamptz IS NULL OR received_at < $2)
        ORDER BY received_at DESC LIMIT $3
        """,
        query,
        before,
        limit,
    )
    return [dict(row) for row in rows]


async def stored_files(connection: Connection) -> set[str]:
    """Return the storage references of all attachments."""
    rows = await connection.fetch(
        """
        SELECT DISTINCT file ->> 'storage_ref' AS reference
        FROM message_inbox, LATERAL jsonb_array_elements(attachments) AS file
        """
    )
    return {row["reference"] for row in rows if row["reference"]}
