"""The Switchboard's front office: everything that is asked about what comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from butlers.db.database import Connection
from butlers.domain.errors import ButlersError
from butlers.domain.message import InboundEnvelope, IngestionTier
from butlers.switchboard.decide import Triage
from butlers.switchboard.ingest import Accepted, MessageIntake
from butlers.switchboard.ingest_stats import IngestStats, Seen

NAMELESS = "(not said)"


@dataclass(frozen=True, slots=True)
class InboundService:
    intake: MessageIntake
    triage: Triage
    stats: IngestStats

    async def accept(
        self, connection: Connection, envelope: InboundEnvelope, *, counted_as: str | None = None
    ) -> Accepted:
        """Take a message in, and count what became of it, under its endpoint if no other name is given."""
        endpoint = counted_as or envelope.source.endpoint_identity
        try:
            accepted = await self.intake.accept(connection, envelope)
        except ButlersError as error:
            if not error.retryable:
                self.stats.count(endpoint, Seen.REFUSED, error.message)
            raise
        self.stats.count(endpoint, _seen(accepted, envelope))
        return accepted

    def refuse(self, told: Any, why: str) -> None:
        """Count what is no envelope at all. Also one that does not say where it comes from is seen."""
        source = told.get("source") if isinstance(told, dict) else None
        endpoint = source.get("endpoint_identity") if isinstance(source, dict) else None
        named = endpoint.strip() if isinstance(endpoint, str) else ""
        self.stats.count(named or NAMELESS, Seen.REFUSED, why)


def _seen(accepted: Accepted, envelope: InboundEnvelope) -> Seen:
    if accepted.duplicate:
        return Seen.DUPLICATE
    noted = envelope.control.ingestion_tier is IngestionTier.METADATA
    return Seen.NOTED if noted else Seen.NEW
