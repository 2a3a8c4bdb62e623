"""The Switchboard as the channels in its own process see it: they hand in messages and heartbeats here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.channels.base import InboundContext
from butlers.domain.faults import kill_point
from butlers.domain.message import InboundEnvelope
from butlers.domain.registration import Heartbeat
from butlers.switchboard import connector_store as connectors
from butlers.switchboard import contacts
from butlers.switchboard.connector_tools import advance_checkpoint, record_heartbeat
from butlers.switchboard.inbound import InboundService
from butlers.switchboard.ingest_stats import Seen
from butlers.switchboard.tools import as_answer
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
                endpoint, Seen.REFUSED, reason
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
            await record_heartbeat(connection, self.inbound.stats, heartbeat)

    async def read_checkpoint(self, kind: str, endpoint: str) -> dict[str, Any] | None:
        async with self.parts.database.transaction() as connection:
            found = await connectors.read_checkpoint(connection, kind, endpoint)
        return found.cursor if found else None

    async def save_checkpoint(
        self, kind: str, endpoint: str, instance_id: UUID, cursor: dict[str, Any]
    ) -> None:
        async with self.parts.database.transaction() as connection:
            await advance_checkpoint(connection, kind, endpoint, instance_id, cursor)

    async def _set_owner_address(self, channel: str, address: str, is_owners: bool) -> None:
        async with self.parts.database.transaction() as connection:
            if is_owners:
                owner = await contacts.owner_id(connection)
                await contacts.add_address(connection, owner, channel, address)
            else:
                await contacts.remove_address(connection, channel, address)
