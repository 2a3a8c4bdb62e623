"""Follow-ups: a short message that changes one thing in the owner's message directly before it.

"and last month?" repeats a question for another period, "no, 81" corrects the number just given. Both
need a reflex that takes the completed message. Where a model is configured, it answers instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

import re2

from butlers.db.database import Connection, Database
from butlers.domain.message import InboxItem, RouteDecision
from butlers.domain.registration import Registration
from butlers.skills.reflexes import compile_trigger
from butlers.skills.reflexes.periods import read_days
from butlers.switchboard.triage import BY_REFLEX, takes

FOLLOW_UP_RULE = "follow-up"
REACH = timedelta(hours=1)  # age of the message before, at most
MAX_WORDS = 60  # of the message before
MAX_PERIOD_WORDS = 6
_NO_PERIOD = frozenset({"all", "ever", "always", "alles", "immer", "insgesamt"})

_ANOTHER_PERIOD = compile_trigger(
    r"(?i)(?:and|und|what about|how about|(?:und )?was ist mit|(?:und )?wie war es)\s+"
    r"(?P<period>[^?!]{2,60}?)[ ?.!]*"
)
_CORRECTION = compile_trigger(
    r"(?i)(?:(?:no|nope|nein|sorry|oops|actually|make (?:it|that)|i meant?|ich meinte?)[,:]?\s+){1,3}"
    r"(?P<number>\d{1,7}(?:[.,]\d{1,3})?)[ .!]*"
)
_NUMBER = re2.compile(r"\d+(?:[.,:/]\d+)*")
_PLAIN_NUMBER = re2.compile(r"\d+(?:[.,]\d+)?")


def completed(text: str, before: str, today: date) -> Iterator[str]:
    """Yield what the message may mean after the one before it; nothing for any other message."""
    if period := _ANOTHER_PERIOD.match(text):
        yield from _with_period(before, period["period"] or "", today)
    elif correction := _CORRECTION.match(text):
        yield from _with_number(before, correction["number"] or "")


class FollowUps:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, item: InboxItem, butlers: list[Registration]) -> list[RouteDecision]:
        """Return the route of a follow-up to the butler of the message before; none for any other."""
        if not (_ANOTHER_PERIOD.matches(item.text) or _CORRECTION.matches(item.text)):
            return []
        async with self._database.transaction() as connection:
            before = await _message_before(connection, item)
        if before is None:
            return []
        target, said = before
        for text in completed(item.text, said, item.request.received_at.date()):
            route = takes(butlers, text)
            if route is not None and route.target == target:
                reason = f"it follows “{said}”"
                return [replace(route, rule=FOLLOW_UP_RULE, reason=reason, part=text)]
        return []


def _with_period(before: str, period: str, today: date) -> Iterator[str]:
    """Yield the message with its only period replaced."""
    if period.casefold() in _NO_PERIOD or read_days(period, today) is None:
        return
    words = before.rstrip(" ?!.").split()[:MAX_WORDS]
    for start, end in _one_period(words, today):
        yield " ".join([*words[:start], *period.split(), *words[end:]])


def _one_period(words: list[str], today: date) -> list[tuple[int, int]]:
    """Return the longest stretch of words that names a period, unless another one lies apart from it."""
    found = [
        (start, end)
        for start in range(len(words))
        for end in range(start + 1, min(start + MAX_PERIOD_WORDS, len(words)) + 1)
        if _names_period(words[start:end], today)
    ]
    if not found:
        return []
    longest = max(found, key=lambda one: one[1] - one[0])
    apart = any(end <= longest[0] or start >= longest[1] for start, end in found)
    return [] if apart else [longest]


def _names_period(words: list[str], today: date) -> bool:
    text = " ".join(words)
    return text.casefold() not in _NO_PERIOD and read_days(text, today) is not None


def _with_number(before: str, number: str) -> Iterator[str]:
    """Yield the corrections of a message that has one number and no other digits."""
    before = before.removeprefix("no, ").removeprefix("nein, ")  # of a correction that is corrected
    found = list(_NUMBER.finditer(before))
    if len(found) != 1 or not _PLAIN_NUMBER.fullmatch(found[0][0]):
        return
    start, end = found[0].span()
    said = f"{before[:start]}{number}{before[end:]}"
    yield f"no, {said}"
    yield f"nein, {said}"


async def _message_before(connection: Connection, item: InboxItem) -> tuple[str, str] | None:
    """Return butler and text of the owner's message directly before, if a reflex decided it."""
    row = await connection.fetchrow(
        """
        SELECT target, rule, coalesce(part, text) AS said FROM (
            SELECT request_id, text FROM message_inbox
            WHERE conversation = $1 AND request_id <> $2 AND state = 'accepted'
              AND received_at BETWEEN $3::timestamptz - $4::interval AND $3
              AND 'owner' = ANY(sender_roles)
            ORDER BY received_at DESC, request_id DESC LIMIT 1
        ) AS newest JOIN route_decisions USING (request_id)
        """,
        item.request.conversation,
        item.request.request_id,
        item.request.received_at,
        REACH,
    )
    if row is None or row["rule"] not in (BY_REFLEX, FOLLOW_UP_RULE):
        return None
    return row["target"], row["said"]
