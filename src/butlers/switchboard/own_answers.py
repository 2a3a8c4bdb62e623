"""Messages of the owner that the Switchboard decides: help, undo, follow-ups, answers to its questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from butlers.domain.message import InboxItem, RouteDecision, Word, parse_command
from butlers.domain.queues import SWITCHBOARD
from butlers.domain.registration import Registration
from butlers.switchboard.approval_answers import ApprovalAnswers
from butlers.switchboard.follow_ups import FollowUps
from butlers.switchboard.guidance import Guidance
from butlers.switchboard.registry import candidates
from butlers.switchboard.triage import takes
from butlers.switchboard.undo import UNDO_RULE, UndoFinder, asks_to_undo

NOTHING_TO_UNDO = "There is nothing to undo in this conversation."


class OwnAnswers:
    def __init__(
        self,
        guidance: Guidance,
        undo: UndoFinder,
        approvals: ApprovalAnswers,
        follow_ups: FollowUps,
    ) -> None:
        self._guidance = guidance
        self._undo = undo
        self._approvals = approvals
        self._follow_ups = follow_ups

    async def decide(
        self, item: InboxItem, registrations: Sequence[Registration]
    ) -> list[RouteDecision]:
        """Return the routes of such a message; none for any other.

        A route to the Switchboard is an answer of its own, with the answer as its text.
        """
        if not item.request.is_owners or item.part is not None:
            return []
        if command := parse_command(await self._approvals.meant(item) or ""):
            text = await self._approvals.decide(command.word is Word.YES, command.rest)
            return [_answer("approval", text)]
        if asks_to_undo(item.text):
            found = await self._undo.find(item, registrations)
            return found or [_answer(UNDO_RULE, NOTHING_TO_UNDO)]
        return await self._confirmed(item, registrations) or await self._help(item, registrations)

    async def decide_without_model(
        self, item: InboxItem, registrations: Sequence[Registration]
    ) -> list[RouteDecision]:
        """Return the route of a follow-up, or the question after a misspelled message; none for any other."""
        if not item.request.is_owners or item.part is not None:
            return []
        if found := await self._follow_ups.find(item, candidates(registrations)):
            return found
        question = await self._guidance.ask_back(item, registrations)
        return [] if question is None else [_answer("suggestion", question)]

    async def _confirmed(
        self, item: InboxItem, registrations: Sequence[Registration]
    ) -> list[RouteDecision]:
        meant = await self._guidance.confirmed(item)
        if meant is None:
            return []
        route = takes(candidates(registrations), meant.text) if meant.text else None
        return [replace(route, part=meant.text) if route else _answer("suggestion", meant.answer)]

    async def _help(
        self, item: InboxItem, registrations: Sequence[Registration]
    ) -> list[RouteDecision]:
        text = await self._guidance.answer(item, registrations)
        return [] if text is None else [_answer("help", text)]


def _answer(rule: str, text: str) -> RouteDecision:
    return RouteDecision(SWITCHBOARD, rule, "the Switchboard answers it", text)
