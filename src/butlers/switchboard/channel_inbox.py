"""The Switchboard as the channels in its own process see it: they hand in messages and heartbeats here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.channels.base import InboundContext
from butlers.domain.faults import kill_point
from butlers.domain.message import InboundEnvelope
from butlers.domain.registration import Heartbeat
from butlers.switchboard import connectors, senders
from butlers.switchboard.connectors import IngestOutcome
from butlers.switchboard.ingest import InboundService, as_answer
from butlers.tools.role import RoleParts


@dataclass(frozen=True, slots=True)
class ChannelInbox:
    """Implements ``ConnectorInbox``; each call is one transaction."""

    parts: RoleParts
    inbound: InboundService

    def context(self) -> InboundContext:
        async def secret(name: str) -> str:
            return await self.parts.credentials.require(name, env=name)

        return InboundContext(
            clock=self.parts.clock,
            secret=secret,
            inbox=self,
            count_rejected=lambda endpoint, reason: self.inbound.stats.count(
                endpoint, IngestOutcome.REFUSED, reason
            ),
            set_owner_address=self._set_owner_address,
        )

    async def accept(
        self, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> dict[str, Any]:
        async with self.parts.database.transaction() as connection:
            accepted = await self.inbound.accept(connection, envelope, counted_as=counted_as)
            kill_point("door.before_commit")
        kill_point("door.committed")
        return as_answer(accepted)

    async def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        async with self.parts.database.transaction() as connection:
            await connectors.record_heartbeat(connection, self.inbound.stats, heartbeat)

    async def read_checkpoint(self, kind: str, endpoint: str) -> dict[str, Any] | None:
        async with self.parts.database.transaction() as connection:
            found = await connectors.read_checkpoint(connection, kind, endpoint)
        return found.cursor if found else None

    async def save_checkpoint(
        self, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
    ) -> None:
        async with self.parts.database.transaction() as connection:
            await connectors.advance_checkpoint(connection, kind, endpoint, instance_id, cursor)

    async def _set_owner_address(self, channel: str, address: str, is_owners: bool) -> None:
        async with self.parts.database.transaction() as connection:
            if is_owners:
                owner = await senders.owner_id(connection)
                await senders.add_address(connection, owner, channel, address)
            else:
                await senders.remove_address(connection, channel, address)
