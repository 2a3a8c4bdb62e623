"""Undo: find the newest message of a conversation that changed something, and ask its butlers to undo it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock
from butlers.domain.errors import Postponed
from butlers.domain.message import InboxItem, RouteDecision, joined
from butlers.domain.queues import INBOX
from butlers.domain.registration import Registration
from butlers.queue.queries import open_keys
from butlers.skills.reflexes import compile_trigger
from butlers.skills.reflexes.core import undo_text
from butlers.wire.client import Peers

UNDO_RULE = "undo"
LOOK_BACK = 50  # messages
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=0.2), timedelta(seconds=30)

_WORDS = compile_trigger(
    r"(?i)(?:please\s+)?(?:undo|revert)(?:\s+(?:that|this|it|(?:the\s+)?last(?:\s+(?:one|thing|change|entry))?))?"
    r"(?:\s+please)?[.!]*"
    r"|(?i)take\s+(?:that|it)\s+back[.!]*"
    r"|(?i)(?:bitte\s+)?(?:(?:mach|mache)\s+(?:das|es)\s+)?(?:wieder\s+)?rückgängig(?:\s+machen)?[.!]*"
    r"|(?i)das\s+rückgängig\s+machen[.!]*|(?i)nimm\s+das\s+zurück[.!]*"
)


def asks_to_undo(text: str) -> bool:
    """Return whether the whole message asks to undo the last change, in English or German."""
    return _WORDS.matches(text)


@dataclass(frozen=True, slots=True)
class _Earlier:
    request_id: UUID
    targets: tuple[str, ...]
    on_its_way: bool  # to one of them


class UndoFinder:
    def __init__(self, database: Database, peers: Peers, clock: Clock) -> None:
        self._database = database
        self._peers = peers
        self._clock = clock

    async def find(
        self, item: InboxItem, registrations: Sequence[Registration]
    ) -> list[RouteDecision]:
        """Return the routes that undo the newest change of the conversation; none without a change.

        Raises Postponed while an earlier message is still being handled, and PeerUnavailable if the
        butler of one is away.
        """
        async with self._database.transaction() as connection:
            earlier = await _owners_messages(connection, item)
        known = {one.name: one for one in registrations}
        answers: dict[str, dict[str, Any]] = {}
        for message in earlier:
            targets = [target for target in message.targets if target in known]
            for target in targets:
                if target not in answers:
                    answers[target] = await self._ask(known[target], earlier)
                if message.on_its_way or str(message.request_id) in answers[target]["open"]:
                    raise Postponed(
                        "an earlier message is handled first", self._next_look(item), aside=False
                    )
            found = [t for t in targets if str(message.request_id) in answers[t]["undoable"]]
            if found:
                return [_route(target, message.request_id) for target in found]
        return []

    async def _ask(self, butler: Registration, earlier: Sequence[_Earlier]) -> dict[str, Any]:
        ids = [str(one.request_id) for one in earlier if butler.name in one.targets]
        answer: dict[str, Any] = await self._peers.call(
            butler.name, butler.url, "undoable", {"request_ids": ids}
        )
        return answer

    def _next_look(self, item: InboxItem) -> datetime:
        now = self._clock.now()
        waited = (now - item.request.received_at) / 4
        return now + min(max(waited, _FIRST_PAUSE), _LONGEST_PAUSE)


def _route(target: str, request_id: UUID) -> RouteDecision:
    text = undo_text(request_id)
    return RouteDecision(target, UNDO_RULE, f"it undoes the message {request_id}", text)


async def _owners_messages(connection: Connection, item: InboxItem) -> list[_Earlier]:
    """Return the owner's earlier messages of the conversation with their butlers, newest first."""
    rows = await connection.fetch(
        """
        SELECT request_id, array_agg(target ORDER BY position) AS targets
        FROM message_inbox JOIN route_decisions USING (request_id)
        WHERE conversation = $1 AND request_id <> $2 AND received_at <= $3
          AND 'owner' = ANY(sender_roles) AND rule <> $4
        GROUP BY request_id, received_at ORDER BY received_at DESC, request_id DESC LIMIT $5
        """,
        item.request.conversation,
        item.request.request_id,
        item.request.received_at,
        UNDO_RULE,
        LOOK_BACK,
    )
    keys = {
        row["request_id"]: {
            str(row["request_id"]),
            *(joined(str(row["request_id"]), target) for target in row["targets"]),
        }
        for row in rows
    }
    waiting = set(
        await open_keys(connection, INBOX, [key for each in keys.values() for key in each])
    )
    return [
        _Earlier(row["request_id"], tuple(row["targets"]), bool(keys[row["request_id"]] & waiting))
        for row in rows
    ]
