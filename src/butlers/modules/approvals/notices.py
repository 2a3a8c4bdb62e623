"""Asks the owner: at most one notification per quiet interval, equal questions together.

A question that came up in a conversation with the owner is asked there at once. Critical ones do not wait
for the interval, and those of low risk are asked once a day. Nothing is asked in quiet hours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from butlers.db.database import Connection, Database
from butlers.domain.approval import ActionStatus, RiskTier
from butlers.domain.clock import Clock, uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.messenger.policy import QuietHours
from butlers.modules.approvals import actions
from butlers.modules.approvals.actions import CHANGED, PendingAction
from butlers.modules.approvals.config import ApprovalsConfig
from butlers.modules.approvals.decisions import Decisions
from butlers.modules.approvals.events import take_turn
from butlers.modules.approvals.links import ApprovalLinks
from butlers.modules.approvals.questions import MAX_LISTED, ask_text, buttons
from butlers.queue.listener import Listener
from butlers.queue.loops import repeat

Deliver = Callable[[Connection, DeliveryRequest], Awaitable[object]]

SCAN_S = 30.0
GATHER_S = 1.0  # after a question, for others that come with it


@dataclass(slots=True)
class ApprovalNotices:
    butler: str
    database: Database
    listener: Listener
    clock: Clock
    zone: ZoneInfo
    config: ApprovalsConfig
    decisions: Decisions
    links: ApprovalLinks
    deliver: Deliver | None  # None: there is no way to the owner but the list
    gather_s: float = GATHER_S

    async def run(self) -> None:
        woken = asyncio.Event()
        with self.listener.wakes(CHANGED, woken):
            await repeat(
                self.send, "approval notices", every_s=SCAN_S, wake=woken, gather_s=self.gather_s
            )

    async def send(self) -> None:
        """Expire what was not decided, and ask what is due to be asked."""
        now = self.clock.now()
        async with self.database.transaction() as connection:
            await self.decisions.expire(connection)
            waiting = await actions.lock_unasked(connection, now)
            for one in [one for one in waiting if _in_conversation(one)]:
                await self._ask_in_thread(connection, one, now)
            due = await self._due(
                connection, [one for one in waiting if not _in_conversation(one)], now
            )
            if due:
                await self._notify(connection, due, now)

    async def _due(
        self, connection: Connection, waiting: Sequence[PendingAction], now: datetime
    ) -> list[PendingAction]:
        """Return what the next notification tells, or nothing if it is not time for one."""
        quiet = self.config.quiet_hours
        if not waiting or (quiet and QuietHours.parse(quiet, self.zone).end_after(now)):
            return []
        digest = self._latest_digest(now)
        due = [
            one
            for one in waiting
            if one.risk_tier is not RiskTier.LOW or one.requested_at <= digest
        ]
        if not due:
            return []
        urgent = any(_is_urgent(one) for one in due)
        pause_s = 0.0 if urgent else self.config.quiet_interval_minutes * 60
        return due if await take_turn(connection, now, pause_s) else []

    def _latest_digest(self, now: datetime) -> datetime:
        """Return the latest time for questions of low risk: those from before it are due."""
        local = now.astimezone(self.zone)
        latest = datetime.combine(
            local.date(), time.fromisoformat(self.config.digest_at), self.zone
        )
        return latest if latest <= local else latest - timedelta(days=1)

    async def _ask_in_thread(
        self, connection: Connection, action: PendingAction, now: datetime
    ) -> None:
        request = action.request
        assert request is not None
        question = DeliveryRequest(
            delivery_id=uuid7(),
            origin=self.butler,
            intent=Intent.REPLY,
            channel=request.source_channel,
            target=request.source_endpoint_identity,
            message=self._text([action], now),
            request_id=request.request_id,
            thread=request.source_thread_identity,
            source_event=request.source_event_identity,
            actions=buttons([action]),
        )
        await self._deliver(connection, question)
        await actions.mark_asked(connection, [action.id], now)

    async def _notify(
        self, connection: Connection, due: Sequence[PendingAction], now: datetime
    ) -> None:
        notice = DeliveryRequest.to_owner(uuid7(), self.butler, self._text(due, now))
        await self._deliver(connection, replace(notice, actions=buttons(due)))
        await actions.mark_asked(connection, [one.id for one in due], now)

    def _text(self, asked: Sequence[PendingAction], now: datetime) -> str:
        text = ask_text(asked, self.zone)
        waiting = [one for one in asked if one.status is ActionStatus.PENDING]
        for one in waiting[:MAX_LISTED]:
            for label, url in zip(("Yes", "No"), self.links.urls(one, now), strict=False):
                text += f"\n{label} [{one.code}]: {url}"
        return text

    async def _deliver(self, connection: Connection, delivery: DeliveryRequest) -> None:
        if self.deliver is not None:
            await self.deliver(connection, delivery)


def _in_conversation(action: PendingAction) -> bool:
    asked_by_owner = action.request is not None and action.request.is_owners
    return asked_by_owner and action.status is ActionStatus.PENDING


def _is_urgent(action: PendingAction) -> bool:
    return action.risk_tier is RiskTier.CRITICAL and action.status is ActionStatus.PENDING
