"""Morning brief and evening review: the lines of all butlers in one message, without a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from butlers.db.database import Database
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.module import BriefPart
from butlers.domain.queues import SWITCHBOARD
from butlers.queue.outbox import queue_delivery
from butlers.switchboard import registry
from butlers.switchboard.asking import ask_butlers
from butlers.switchboard.registry import candidates
from butlers.switchboard.triage import FALLBACK
from butlers.wire.client import Peers

log = structlog.get_logger()

MAX_LINES = 20
OPENINGS = {BriefPart.MORNING: "Good morning. Today:", BriefPart.EVENING: "Before tomorrow:"}


class Briefing:
    def __init__(self, database: Database, peers: Peers) -> None:
        self._database = database
        self._peers = peers

    def jobs(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """Return the jobs that schedules may name."""
        return {"morning_brief": self.morning_brief, "evening_review": self.evening_review}

    async def morning_brief(self, job: Any) -> str | None:
        return await self._send(job, BriefPart.MORNING)

    async def evening_review(self, job: Any) -> str | None:
        return await self._send(job, BriefPart.EVENING)

    async def compose(self, part: BriefPart) -> str | None:
        """Return the message; None if no butler has anything to say."""
        async with self._database.transaction() as connection:
            butlers = candidates(await registry.list_registrations(connection))
        answers = await ask_butlers(self._peers, butlers, "brief", {"part": str(part)})
        for name, error in answers.missing.items():
            log.warning("a butler is missing in the brief", name=name, error=error)
        in_order = sorted(answers.given, key=lambda name: (name == FALLBACK, name))
        lines = [line for name in in_order for line in answers.given[name]["lines"]]
        if not lines:
            return None
        shown = [f"- {line}" for line in lines[:MAX_LINES]]
        if len(lines) > MAX_LINES:
            shown.append(f"… and {len(lines) - MAX_LINES} more")
        return answers.with_missing("\n".join([OPENINGS[part], *shown]))

    async def _send(self, job: Any, part: BriefPart) -> str | None:
        """Queue the message with the outcome of the run, whose id makes it one delivery."""
        text = await self.compose(part)
        if text is not None:
            delivery = DeliveryRequest.to_owner(job.run_id, SWITCHBOARD, text)
            await queue_delivery(job.connection, delivery)
        return text
