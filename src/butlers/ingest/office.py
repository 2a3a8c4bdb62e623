"""The Switchboard's front office: everything that is asked about what comes in."""

from __future__ import annotations

from dataclasses import dataclass

from butlers.domain.errors import ButlersError
from butlers.domain.message import InboundEnvelope
from butlers.ingest.accept import Accepted, Desk
from butlers.ingest.judge import Judge
from butlers.ingest.tally import Seen, Tally
from butlers.store.database import Connection


@dataclass(frozen=True, slots=True)
class FrontOffice:
    desk: Desk
    judge: Judge
    tally: Tally

    async def accept(
        self, connection: Connection, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> Accepted:
        """Take a message in, and count what became of it, under its endpoint if no other name is given."""
        channel = envelope.source.channel
        endpoint = counted_as or envelope.source.endpoint_identity
        try:
            accepted = await self.desk.accept(connection, envelope)
        except ButlersError as error:
            if not error.retryable:
                self.tally.count(channel, endpoint, Seen.REFUSED, error.message)
            raise
        seen = Seen.DUPLICATE if accepted.duplicate else Seen.NEW
        self.tally.count(channel, endpoint, seen)
        return accepted
