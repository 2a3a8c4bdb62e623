"""Guidance for the owner: what the running butlers can do, and suggestions for a message that none takes.

Everything is read from the butlers' own reflexes at the time of asking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from butlers.db.database import Connection, Database
from butlers.domain.message import InboxItem
from butlers.domain.registration import Registration
from butlers.skills.reflexes import compile_trigger
from butlers.skills.reflexes.suggest import ReflexExample, closest, corrected
from butlers.switchboard.asking import ButlerAnswers, ask_butlers
from butlers.switchboard.registry import candidates
from butlers.switchboard.triage import takes
from butlers.tools.state import get_entry, put_entry
from butlers.wire.client import Peers

EXAMPLES_EACH = 4  # of a butler, in the overview
EXAMPLES_ALL = 25  # of one butler, when it is asked for

_HELLO = compile_trigger(
    r"(?i)(?:hello|hi|hey|good (?:morning|afternoon|evening)|hallo|moin|servus|guten (?:morgen|tag|abend))"
    r"(?:\s+(?:there|butler|butlers|zusammen))?[ .!?]*"
)
_HELP = compile_trigger(
    r"(?i)(?:help|\?|commands|examples|hilfe|beispiele)[ .!?]*"
    r"|(?i)what can (?:you|i) (?:do|say|ask)(?: for me)?[ .!?]*|(?i)how does (?:this|it) work[ .!?]*"
    r"|(?i)what do you (?:do|know|understand)[ .!?]*"
    r"|(?i)was kannst du(?: alles)?(?: tun)?[ .!?]*|(?i)was kann ich (?:sagen|fragen|tun)[ .!?]*"
)
_HELP_WITH = compile_trigger(
    r"(?i)(?:help(?:\s+(?:with|on|for))?|hilfe(?:\s+(?:mit|zu))?)\s+(?P<topic>[\w-]{2,40})[ .!?]*"
)
_YES = compile_trigger(
    r"(?i)(?:yes|yep|yeah|y|ok|okay|sure|ja|jep|genau|jo)(?:,?\s+(?:please|bitte))?[ .!]*"
)
_NO = compile_trigger(r"(?i)(?:no|nope|n|nein|nee)(?:,?\s+(?:thanks|thank you|danke))?[ .!]*")

ANYTHING_ELSE = "“undo” takes back the last change."
REFUSED = "All right, I did nothing."


@dataclass(frozen=True, slots=True)
class NearMissAnswer:
    """An answer to a message that no butler understands, and the text that a "yes" to it runs."""

    answer: str
    text: str | None = None


class Guidance:
    def __init__(self, database: Database, peers: Peers) -> None:
        self._database = database
        self._peers = peers

    async def answer(self, item: InboxItem, known: Sequence[Registration]) -> str | None:
        """Return the answer to a greeting or a question for help; None for any other message."""
        if _HELLO.matches(item.text):
            return await self._overview(known, "Hello! Tell me things to keep, or ask about them.")
        if _HELP.matches(item.text):
            return await self._overview(known, "You can say, for example:")
        topic = _HELP_WITH.match(item.text)
        if topic is not None:
            return await self._about((topic["topic"] or "").casefold(), known)
        return None

    async def ask_back(self, item: InboxItem, known: Sequence[Registration]) -> str | None:
        """Return the question whether a misspelled message means something, and remember it for a "yes".

        None if no correction of it matches a reflex.
        """
        butlers = candidates(known)
        answers = await ask_butlers(self._peers, butlers, "reflex_list", {})
        meant = corrected(
            item.text, _examples(answers), lambda text: takes(butlers, text) is not None
        )
        if meant is None:
            return None
        async with self._database.transaction() as connection:
            await _remember(connection, item, meant)
        return f"Did you mean “{meant}”? Say yes, and I do that."

    async def similar(self, item: InboxItem, known: Sequence[Registration]) -> str:
        """Return the closest messages that would have worked."""
        answers = await ask_butlers(self._peers, candidates(known), "reflex_list", {})
        found = [f"- {one.text}" for one in closest(item.text, _examples(answers))]
        if not found:
            return answers.with_missing("Say “help” to see what I can do.")
        return answers.with_missing("\n".join(["The closest that I understand:", *found]))

    async def confirmed(self, item: InboxItem) -> NearMissAnswer | None:
        """Return the suggestion that this "yes" or "no" answers, if it directly follows one."""
        yes, no = _YES.matches(item.text), _NO.matches(item.text)
        if not yes and not no:
            return None
        async with self._database.transaction() as connection:
            meant = await _recall(connection, item)
        if meant is None:
            return None
        return NearMissAnswer(REFUSED) if no else NearMissAnswer("", meant)

    async def _overview(self, known: Sequence[Registration], opening: str) -> str:
        answers = await ask_butlers(self._peers, candidates(known), "reflex_list", {})
        lines = [opening]
        for name, answer in sorted(answers.given.items(), key=lambda one: one[0] == "general"):
            samples = _one_of_each(answer, EXAMPLES_EACH)
            if samples:
                lines.append(f"{name.capitalize()}: {'; '.join(samples)}")
        names = [name for name, answer in answers.given.items() if answer["reflexes"]]
        more = f"More: “help {names[0]}”. " if names else ""
        lines.append(f"{more}{ANYTHING_ELSE}")
        return answers.with_missing("\n".join(lines))

    async def _about(self, topic: str, known: Sequence[Registration]) -> str | None:
        """Return the examples of one butler or of one of its skills; None if there is no such one."""
        answers = await ask_butlers(self._peers, candidates(known), "reflex_list", {})
        for name, answer in answers.given.items():
            skills = {one["skill"]: one for one in answer["reflexes"]}
            chosen = [one for one in answer["reflexes"] if topic in (name, one["skill"].casefold())]
            if chosen and (topic == name or topic in skills):
                shown = _one_of_each({"reflexes": chosen}, EXAMPLES_ALL)
                return "\n".join([answer["description"], *(f"- {text}" for text in shown)])
        return None


def _one_of_each(answer: dict[str, Any], limit: int) -> list[str]:
    """Return the first example of each reflex, skill by skill in turn."""
    by_skill: dict[str, list[str]] = {}
    for one in answer["reflexes"]:
        if one["examples"]:
            by_skill.setdefault(one["skill"], []).append(one["examples"][0])
    found: list[str] = []
    for turn in range(max(map(len, by_skill.values()), default=0)):
        found += [texts[turn] for texts in by_skill.values() if turn < len(texts)]
    return found[:limit]


def _examples(answers: ButlerAnswers) -> list[ReflexExample]:
    return [
        ReflexExample(butler, f"{one['skill']}/{one['name']}", text)
        for butler, answer in sorted(answers.given.items())
        for one in answer["reflexes"]
        for text in one["examples"]
    ]


def _key(item: InboxItem) -> str:
    digest = hashlib.sha256(item.request.conversation.encode()).hexdigest()
    return f"switchboard/suggestion/{digest[:32]}"


async def _remember(connection: Connection, item: InboxItem, text: str) -> None:
    value = {"request_id": str(item.request.request_id), "text": text}
    await put_entry(connection, _key(item), value)


async def _recall(connection: Connection, item: InboxItem) -> str | None:
    """Return the text suggested for the message directly before this one."""
    entry = await get_entry(connection, _key(item))
    if entry is None:
        return None
    previous = await connection.fetchval(
        """
        SELECT request_id FROM message_inbox
        WHERE conversation = $1 AND request_id <> $2 AND received_at <= $3 AND state = 'accepted'
        ORDER BY received_at DESC, request_id DESC LIMIT 1
        """,
        item.request.conversation,
        item.request.request_id,
        item.request.received_at,
    )
    text: str = entry.value["text"]
    return text if entry.value["request_id"] == str(previous) else None
