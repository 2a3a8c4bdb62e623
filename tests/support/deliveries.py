"""A delivery sender on real tables, with a real webhook server to send to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from butlers.channels.console.mailbox import ConsoleSender
from butlers.channels.webhook.sender import OutboundWebhook, WebhookSender
from butlers.db.database import Database
from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryRequest, DeliveryState, Intent
from butlers.domain.queues import DELIVERIES
from butlers.messenger import approvals, delivery_intake, tools
from butlers.messenger.delivery_notices import DeliveryNotices
from butlers.messenger.limits import DeliveryLimits
from butlers.messenger.policy import DeliveryPolicy
from butlers.messenger.sender import DeliverySender
from butlers.modules.approvals.config import ApprovalsConfig
from butlers.modules.approvals.decisions import Decisions
from butlers.modules.approvals.gate import ApprovalGate
from butlers.queue.listener import Listener
from butlers.queue.worker import QueueWorker
from butlers.tools.declaration import spec_of
from butlers.tools.gate import NOT_DECIDED
from support.clocks import LeapClock
from support.waiting import until
from support.webhook_server import WebhookServer

SECRET = "a signing secret of the tests"


def made_at(moment: datetime) -> UUID:
    """Return a delivery id of that time."""
    now = uuid7()
    milliseconds = int(moment.timestamp() * 1000)
    return UUID(int=(milliseconds << 80) | (now.int & ((1 << 80) - 1)))


class ReleaseRunner:
    """Runs the one tool that a decision about a delivery calls, without a butler around it."""

    def __init__(self, harness: DeliveryHarness) -> None:
        self._harness = harness
        self.specs = {approvals.RELEASE: spec_of(tools.delivery_release)}

    async def run_approved(
        self, connection: Any, tool: str, arguments: dict[str, Any], **_origin: Any
    ) -> Any:
        assert tool == approvals.RELEASE
        released = approvals.ApprovedDelivery(
            UUID(arguments["delivery_id"]), tuple(arguments["reasons"])
        )
        harness = self._harness
        await approvals.release(connection, released, harness.policy, harness.clock.now())
        return {}

    async def refuse(self, connection: Any, tool: str, arguments: dict[str, Any], why: str) -> None:
        state = DeliveryState.EXPIRED if why == NOT_DECIDED else DeliveryState.DISCARDED
        delivery_id, now = UUID(arguments["delivery_id"]), self._harness.clock.now()
        await approvals.end_parked(connection, delivery_id, state, why, now)


class DeliveryHarness:
    def __init__(self, database: Database, server: WebhookServer) -> None:
        self.database = database
        self.server = server
        self.clock = LeapClock()
        self.policy = DeliveryPolicy(channels=frozenset({"console", "webhook"}))
        self.limits = {"per_minute": 1000, "per_recipient_per_minute": 1000}
        self.timeout_s = 10.0
        self._ends: list[Any] = []
        self.gate = ApprovalGate("messenger", ApprovalsConfig(), self.clock)
        self.gate.attach(ReleaseRunner(self))
        self.decisions = Decisions("messenger", database, self.clock, self.gate, tells=False)

    # -- workers -----------------------------------------------------------------------------------

    async def open(self, *, workers: int = 4) -> None:
        self.listener = Listener(self.database.login, "tests:listener", recover_every_s=0.05)
        listening = asyncio.create_task(self.listener.run(await self.listener.open()))
        self.sender = await self.make_sender()
        self.worker = QueueWorker(
            self.database, self.listener, DELIVERIES, self.sender.send, concurrency=workers
        )
        self.worker.start()
        self._ends = [listening]

    async def make_sender(self) -> DeliverySender:
        async def secret(name: str) -> str:
            assert name == "HOOK_SECRET"
            return SECRET

        hooks = {
            "sure": OutboundWebhook(
                url=self.server.url, secret_name="HOOK_SECRET", idempotent=True
            ),
            "plain": OutboundWebhook(
                url=self.server.url, secret_name="HOOK_SECRET", idempotent=False
            ),
        }
        channels = {
            "console": ConsoleSender(self.database, self.clock),
            "webhook": WebhookSender(hooks, secret, self.clock, timeout_s=self.timeout_s),
        }
        sender = DeliverySender(
            self.database,
            channels,
            self.policy,
            DeliveryLimits(self.clock, **self.limits),
            self.clock,
        )
        await sender.open()
        return sender

    async def close(self, grace_s: float = 5.0) -> None:
        if not self._ends:
            return
        await self.worker.stop(grace_s)
        (listening,) = self._ends
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        self._ends = []

    def notices(self) -> DeliveryNotices:
        return DeliveryNotices("messenger", self.database, self.listener, self.policy, self.clock)

    # -- deliveries --------------------------------------------------------------------------------

    async def accept(self, delivery: DeliveryRequest, *, known: bool = True) -> UUID:
        async with self.database.transaction() as connection:
            if known:
                await approvals.remember_recipient(
                    connection, delivery.channel, delivery.target, "approved", self.clock.now()
                )
            return await delivery_intake.accept_delivery(
                connection, delivery, self.policy, self.clock.now(), self.gate
            )

    async def resend(self, delivery_id: UUID) -> None:
        async with self.database.transaction() as connection:
            await delivery_intake.resend(connection, delivery_id, self.policy, self.clock.now())

    async def approve(self, action_id: UUID) -> list[UUID]:
        """Return the deliveries that the decision is about."""
        async with self.database.transaction() as connection:
            decided = await self.decisions.approve(connection, action_id, "owner")
        return [UUID(action.tool_args["delivery_id"]) for action in decided]

    async def reject(self, action_id: UUID) -> None:
        async with self.database.transaction() as connection:
            await self.decisions.reject(connection, action_id, "owner", None)

    async def expire(self) -> None:
        async with self.database.transaction() as connection:
            await self.decisions.expire(connection)

    async def hurry(self) -> None:
        """Make every waiting queue item due now, without moving the clock of the harness."""
        await self.execute("UPDATE queue_items SET run_after = now() WHERE state = 'ready'")
        self.worker._wake.set()

    # -- rows ---------------------------------------------------------------------

    async def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
        async with self.database.transaction() as connection:
            return [dict(row) for row in await connection.fetch(sql, *arguments)]

    async def execute(self, sql: str, *arguments: Any) -> None:
        async with self.database.transaction() as connection:
            await connection.execute(sql, *arguments)

    async def delivery(self, delivery_id: UUID) -> dict[str, Any]:
        (row,) = await self.rows("SELECT * FROM deliveries WHERE delivery_id = $1", delivery_id)
        return row

    async def attempts(self, delivery_id: UUID) -> list[str | None]:
        rows = await self.rows(
            "SELECT outcome FROM delivery_attempts WHERE delivery_id = $1 ORDER BY number",
            delivery_id,
        )
        return [row["outcome"] for row in rows]

    async def queued(self) -> list[dict[str, Any]]:
        return await self.rows("SELECT state, attempts, error FROM queue_items ORDER BY id")

    async def mail(self) -> list[str]:
        rows = await self.rows("SELECT message FROM console_mailbox ORDER BY position")
        return [row["message"] for row in rows]

    async def until_state(self, delivery_id: UUID, *states: DeliveryState) -> dict[str, Any]:
        """Return the delivery when it is in one of these states and no item is leased."""

        async def look() -> dict[str, Any] | None:
            row = await self.delivery(delivery_id)
            busy = await self.rows("SELECT 1 FROM queue_items WHERE state = 'leased'")
            return row if row["state"] in states and not busy else None

        return await until(f"{delivery_id} to be {states}", look)

    async def until_settled(self) -> None:
        async def look() -> bool:
            return not await self.rows(
                """
                SELECT 1 FROM queue_items AS item
                WHERE state = 'leased' OR (state = 'ready' AND run_after <= now() AND NOT EXISTS (
                    SELECT FROM queue_items AS earlier
                    WHERE earlier.queue = item.queue AND earlier.lane = item.lane
                      AND earlier.id < item.id AND earlier.state = 'ready'
                      AND earlier.run_after > now() AND earlier.attempts = 0 AND NOT earlier.aside))
                """
            )

        await until("all that is due, and has nobody before it, to be settled", look)

    async def until_asked(self) -> None:
        async def look() -> bool:
            return bool(self.server.requests)

        await until("the server to be asked", look)

    async def until_mail(self) -> list[str]:
        return await until("mail", self.mail)


ONE = DeliveryRequest(
    delivery_id=uuid7(),
    origin="health",
    intent=Intent.REPLY,
    channel="webhook",
    target="plain:anna",
    message="Hello.",
)


def delivery(target: str = "plain:anna", **changes: Any) -> DeliveryRequest:
    """Return a delivery; ``age`` is the time since it was requested."""
    age: timedelta | None = changes.pop("age", None)
    made = uuid7() if age is None else made_at(datetime.now(UTC) - age)
    return replace(ONE, target=target, **{"delivery_id": made, **changes})
