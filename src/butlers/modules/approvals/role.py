"""Wiring of the approvals module: the gate, the worker for long calls, the notices and the links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.db.database import Connection
from butlers.domain.delivery import DeliveryRequest
from butlers.domain.message import CONSOLE
from butlers.messenger.delivery_intake import accept_notice
from butlers.messenger.policy import DeliveryPolicy
from butlers.modules.approvals.actions import count_open
from butlers.modules.approvals.config import ApprovalsConfig
from butlers.modules.approvals.decisions import EXECUTIONS, Decisions
from butlers.modules.approvals.gate import ApprovalGate
from butlers.modules.approvals.links import PATH, ApprovalLinks
from butlers.modules.approvals.notices import ApprovalNotices, Deliver
from butlers.modules.lifecycle import validated_section
from butlers.queue.outbox import queue_delivery
from butlers.tools.role import HttpRoute, Loop, QueueWork, Role, RoleParts

MODULE = "approvals"
RETENTION = {
    "pending_actions": """
        status IN ('rejected', 'expired', 'executed') AND decided_at < $1
        AND (status <> 'expired' OR told_at IS NOT NULL)
        AND id::text <> ALL($2) AND coalesce(request_id::text, '') <> ALL($2)"""
}


def _way_to_owner(parts: RoleParts) -> Deliver | None:
    """Return how this butler asks: the Messenger by itself, others through the Switchboard."""
    if parts.config.role is ButlerKind.MESSENGER:
        channels = frozenset(parts.config.channels) | {CONSOLE}
        policy = DeliveryPolicy.from_config(parts.config, channels)

        async def accept(connection: Connection, notice: DeliveryRequest) -> None:
            await accept_notice(connection, notice, policy, parts.clock.now())

        return accept
    return queue_delivery if parts.config.switchboard is not None else None


class ApprovalsRole(Role):
    """Belongs to every butler with ``[modules.approvals]``.

    An invalid section ends the start: a butler must not run without the gates that its owner wants.
    """

    _gate: ApprovalGate
    _decisions: Decisions
    _notices: ApprovalNotices
    _links: ApprovalLinks

    @classmethod
    def belongs_to(cls, config: ButlerConfig) -> bool:
        return MODULE in config.modules

    @classmethod
    def validate_config(cls, config: ButlerConfig, home: Path) -> None:
        validated_section(MODULE, ApprovalsConfig, config)

    async def open(self, parts: RoleParts) -> None:
        config: ApprovalsConfig = validated_section(MODULE, ApprovalsConfig, parts.config)
        name, clock, database = parts.config.name, parts.clock, parts.database
        self._gate = ApprovalGate(name, config, clock)
        tells = parts.config.switchboard is not None
        self._decisions = Decisions(name, database, clock, self._gate, tells)
        self._links = ApprovalLinks(self._decisions, parts.tokens, config.link_url)
        self._notices = ApprovalNotices(
            name,
            database,
            parts.listener,
            clock,
            ZoneInfo(parts.config.timezone),
            config,
            self._decisions,
            self._links,
            _way_to_owner(parts),
        )

    def services(self) -> Sequence[object]:
        return (self._gate, self._decisions, self._notices, self._links)

    def workers(self) -> Sequence[QueueWork]:
        return (QueueWork(EXECUTIONS, self._decisions.execute, 1),)

    def routes(self) -> Sequence[HttpRoute]:
        return (HttpRoute(f"{PATH}/{{token}}", self._links.serve, ("GET", "POST")),)

    def loops(self) -> Mapping[str, Loop]:
        return {"approval notices": self._notices.run}

    async def open_questions(self, connection: Connection) -> int:
        return await count_open(connection)

    def retention(self) -> Mapping[str, str]:
        return RETENTION
