"""The owner's answers by chat to questions about waiting actions: "yes", "no", with or without a code,
and "undo" with the code of an approved one.

A plain "yes" counts only directly after a question of the daemon itself (a delivery with buttons), because
a session can write any text, but no buttons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from butlers.db.database import Connection, Database
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError
from butlers.domain.message import InboxItem, Word, parse_command
from butlers.switchboard import conversation, registry
from butlers.switchboard.asking import ask_butlers
from butlers.wire.client import Peers

REACH = timedelta(hours=48)
MAX_LISTED = 5
_DONE = {"executed": "Done", "approved": "Approved, and being done", "rejected": "Not done"}


@dataclass(frozen=True, slots=True)
class _Listed:
    """An action, and the butler that has it."""

    butler: str
    url: str
    action: dict[str, Any]

    @property
    def code(self) -> str:
        return str(self.action["code"])


class ApprovalAnswers:
    def __init__(self, database: Database, peers: Peers, clock: Clock) -> None:
        self._database = database
        self._peers = peers
        self._clock = clock

    async def meant(self, item: InboxItem) -> str | None:
        """Return the command that a plain "yes" or "no" stands for, if it answers a question."""
        word = item.text.strip().rstrip(".!").casefold()
        if word not in (Word.YES, Word.NO):
            return None
        async with self._database.transaction() as connection:
            return await self._button(connection, item, word)

    async def _button(self, connection: Connection, item: InboxItem, word: str) -> str | None:
        since = self._clock.now() - REACH
        answers = await conversation.last_answers(connection, item.request.conversation, since)
        commands = (parse_command(answer) for answer in answers)
        chosen = next((one for one in commands if one and one.word == word), None)
        return f"/{chosen.word} {chosen.rest}" if chosen else None

    async def decide(self, approve: bool, code: str) -> str:
        """Decide the waiting action with this code; without one, the only one that waits."""
        waiting = await self._listed("list_pending_actions")
        chosen = [one for one in waiting if not code or one.code == code.casefold()]
        if len(chosen) != 1:
            return _which(chosen or waiting, code)
        tool = "approve_action" if approve else "reject_action"
        return await self._call(chosen[0], tool, _outcome)

    async def undo(self, code: str) -> str:
        """Undo the approved action with this code."""
        done = await self._listed("list_executed_actions")
        chosen = [one for one in done if one.code == code.casefold()]
        if len(chosen) != 1:
            return f"No approved action has the code {code[:12]!r}."
        return await self._call(chosen[0], "undo_action", _undone)

    async def _listed(self, tool: str) -> list[_Listed]:
        """Return the actions that a tool of every butler lists."""
        async with self._database.transaction() as connection:
            known = await registry.list_registrations(connection)
        answers = await ask_butlers(self._peers, known, tool, {"limit": 500})
        urls = {one.name: one.url for one in known}
        return [
            _Listed(name, urls[name], action)
            for name, found in answers.given.items()
            for action in found["actions"]
        ]

    async def _call(self, one: _Listed, tool: str, told: Callable[[dict[str, Any]], str]) -> str:
        arguments = {"action_id": one.action["id"]}
        try:
            return told(await self._peers.call(one.butler, one.url, tool, arguments))
        except ButlersError as error:
            return f"That did not work: {error.message}"


def _which(waiting: list[_Listed], code: str) -> str:
    if not waiting:
        return "Nothing waits for your decision."
    opening = f"No action has the code {code[:12]!r}. " if code else ""
    lines = [f"- {one.code}: {one.action['agent_summary']}" for one in waiting[:MAX_LISTED]]
    return f'{opening}Which one? Answer "yes CODE" or "no CODE":\n' + "\n".join(lines)


def _outcome(done: dict[str, Any]) -> str:
    result = done.get("execution_result") or {}
    also = f" (and {len(done['also_decided'])} more)" if done["also_decided"] else ""
    if result and not result.get("success"):
        return f"Approved, but it failed: {result.get('error')}{also}"
    told = f"{_DONE.get(done['status'], done['status'])}{also}: {done['agent_summary']}"
    can_undo = done["status"] == "executed" and done["reversible"]
    return f'{told}\n"undo {done["code"]}" takes it back, for ten minutes.' if can_undo else told


def _undone(done: dict[str, Any]) -> str:
    return f"Undone: {done['agent_summary']}"
