"""The Switchboard as a role: takes messages in, decides who answers, dispatches, obeys owner commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from butlers.channels.base import Channel
from butlers.channels.registry import load_channels, run_connector
from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.db.database import Connection
from butlers.domain.message import joined
from butlers.domain.queues import COMMANDS, DELIVERIES, INBOX, NOTIFY
from butlers.queue import queries
from butlers.switchboard import (
    classification,
    connectors,
    contacts,
    dispatch,
    exchange,
    inbox,
    ingest,
    messages,
    registry,
    rules,
    triage,
)
from butlers.switchboard.briefing import Briefing
from butlers.switchboard.classification import Classifier
from butlers.switchboard.commands import OwnerCommands
from butlers.switchboard.connectors import IngestStats
from butlers.switchboard.dispatch import Dispatcher, HistoryLimits
from butlers.switchboard.exchange import PeerExchange
from butlers.switchboard.guidance import Guidance
from butlers.switchboard.http_ingest import ChannelInbox, HttpIngest
from butlers.switchboard.ingest import InboundService, MessageIntake
from butlers.switchboard.triage import Triage
from butlers.tools.attachments import BlobStore
from butlers.tools.declaration import ToolFunction
from butlers.tools.mail import MailView
from butlers.tools.requests import as_hops, read_hops
from butlers.tools.role import Hop, HttpRoute, Loop, QueueWork, Role, RoleParts

MESSAGE_HOPS = """
SELECT received_at AS at, channel, sender, sender_roles, thread, policy_tier, state, state_reason,
       jsonb_array_length(attachments) AS attachments
FROM message_inbox WHERE request_id = $1
"""
DECISION_HOPS = """
SELECT decided_at AS at, target, rule, reason, part, after_previous, routed_at, ended_at, ended_well
FROM route_decisions WHERE request_id = $1 ORDER BY position
"""

RETENTION = {
    # The decisions on a message are deleted with it.
    "message_inbox": "received_at < $1 AND state <> 'held' AND request_id::text <> ALL($2)",
    "said": "said_at < $1 AND coalesce(request_id::text, '') <> ALL($2)",
}


class SwitchboardRole(Role):
    _parts: RoleParts
    _inbound: InboundService
    _triage: Triage
    _inbox: ChannelInbox
    _channels: Mapping[Channel, Any]
    _dispatcher: Dispatcher
    _exchange: PeerExchange
    _commands: OwnerCommands
    _briefing: Briefing

    @classmethod
    def belongs_to(cls, config: ButlerConfig) -> bool:
        return config.role is ButlerKind.SWITCHBOARD

    @classmethod
    def validate_config(cls, config: ButlerConfig, home: Path) -> None:
        load_channels(home).inbound(config)

    async def open(self, parts: RoleParts) -> None:
        config, settings = parts.config, parts.config.triage
        channels = load_channels(parts.home)
        intake = MessageIntake(
            parts.clock,
            channels,
            BlobStore(config.storage.blob_dir),
            config.buffer.queue_capacity,
            timedelta(seconds=settings.dedupe_window_s),
        )
        reach = timedelta(days=settings.affinity_days)
        self._parts = parts
        self._triage = Triage(parts.database, parts.peers, channels, reach)
        self._channels = channels.inbound(config)
        self._inbound = InboundService(intake, IngestStats(parts.clock))
        self._inbox = ChannelInbox(parts, self._inbound)
        self._dispatcher = Dispatcher(
            parts.database,
            parts.peers,
            parts.clock,
            self._triage,
            Classifier(parts.database, parts.spawner, parts.recovery),
            HistoryLimits(timedelta(minutes=settings.history_minutes), settings.history_messages),
            Guidance(parts.database, parts.peers),
            channels,
            config.buffer.worker_count,
        )
        self._exchange = PeerExchange(parts.database, parts.peers)
        self._commands = OwnerCommands(parts)
        self._briefing = Briefing(parts.database, parts.peers)

    def services(self) -> Sequence[object]:
        return (
            self._inbound,
            self._inbound.stats,
            self._inbox.progress,
            self._triage,
            MailView(INBOX, inbox.search_messages),
            self._exchange,
        )

    def tools(self) -> Sequence[ToolFunction]:
        return (
            *ingest.TOOLS,
            *messages.TOOLS,
            *registry.TOOLS,
            *classification.TOOLS,
            *dispatch.TOOLS,
            *exchange.TOOLS,
            *rules.TOOLS,
            *triage.TOOLS,
            *contacts.TOOLS,
            *connectors.TOOLS,
        )

    def jobs(self) -> Mapping[str, Callable[..., Awaitable[Any]]]:
        return self._briefing.jobs()

    def retention(self) -> Mapping[str, str]:
        return RETENTION

    def workers(self) -> Sequence[QueueWork]:
        concurrency = self._parts.config.buffer.worker_count
        sessions = self._parts.config.runtime.max_concurrent_sessions
        return (
            QueueWork(COMMANDS, self._commands.carry_out, 2),  # a stop runs beside another command
            # Beside the messages that sessions classify, so many others at once.
            QueueWork(INBOX, self._dispatcher.route_message, concurrency + sessions),
            QueueWork(DELIVERIES, self._dispatcher.forward_delivery, concurrency),
            QueueWork(NOTIFY, self._dispatcher.forward_delivery, concurrency),
        )

    def routes(self) -> Sequence[HttpRoute]:
        return HttpIngest(self._parts, self._inbound, self._inbox, self._channels).routes()

    def loops(self) -> Mapping[str, Loop]:
        context = self._inbox.context()
        return {
            f"{channel.name} connector": partial(run_connector, channel, config, context)
            for channel, config in self._channels.items()
        }

    async def request_hops(self, connection: Connection, request_id: UUID) -> list[Hop]:
        decided = await read_hops(connection, "decided", DECISION_HOPS, request_id)
        parts = [joined(str(request_id), hop["target"]) for hop in decided]
        return [
            *await read_hops(connection, "received", MESSAGE_HOPS, request_id),
            *decided,
            *as_hops("queued", await queries.items_by_key(connection, parts)),
        ]

    async def stored_files(self, connection: Connection) -> set[str] | None:
        return await inbox.stored_files(connection)
