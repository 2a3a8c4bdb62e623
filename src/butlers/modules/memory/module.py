"""The memory module: its parts, its tools, its queues and the context block of sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from butlers.db.database import Connection, Database
from butlers.domain.message import RouteRequest
from butlers.domain.session import SessionRequest
from butlers.modules.base import Module, ToolMeta
from butlers.modules.memory.config import MemoryConfig
from butlers.modules.memory.context_block import BlockRequest, compose_block
from butlers.modules.memory.embedding.embedder import NOT_INSTALLED, shared_embedder
from butlers.modules.memory.embedding.vectors import VectorStore
from butlers.modules.memory.learning.consolidation import QUEUE as CONSOLIDATION
from butlers.modules.memory.learning.consolidation import TRIGGER, Consolidator, plan_consolidation
from butlers.modules.memory.learning.maintenance import clean_up
from butlers.modules.memory.learning.recording import record_message
from butlers.modules.memory.propagation import QUEUE as FORGETTING
from butlers.modules.memory.propagation import ForgetPropagation
from butlers.modules.memory.search.engine import SearchEngine
from butlers.modules.memory.tools import entities, recall, storing, upkeep
from butlers.tools.role import QueueWork, RoleParts

SENSITIVE = ToolMeta(arg_sensitivities={"content": True})


class MemoryModule(Module):
    """Episodes, facts, rules and entities of one butler."""

    name = "memory"
    config_schema = MemoryConfig
    tools = (*storing.TOOLS, *recall.TOOLS, *entities.TOOLS, *upkeep.TOOLS)

    config: MemoryConfig
    engine: SearchEngine
    vectors: VectorStore

    def __init__(self) -> None:
        self._butler = ""
        self._database: Database | None = None

    def migration_revisions(self) -> str:
        return "memory"

    def tool_metadata(self) -> Mapping[str, ToolMeta]:
        """Mask stored texts in the audit log, which outlives what is forgotten."""
        stored = (
            "memory_store_episode",
            "memory_store_fact",
            "memory_store_rule",
            "memory_correct",
        )
        masked = dict.fromkeys(stored, SENSITIVE)
        return {**masked, "memory_import": ToolMeta(arg_sensitivities={"items": True})}

    async def on_startup(
        self, config: MemoryConfig, db: Database, credential_store: Any = None
    ) -> None:
        self._database = db
        self.vectors = VectorStore(shared_embedder(config.embedding.model))
        self.engine = SearchEngine(db, self.vectors)

    def workers(self, parts: RoleParts) -> Sequence[QueueWork]:
        self._butler = parts.config.name
        consolidator = Consolidator(
            parts.database,
            parts.spawner,
            parts.clock,
            self.config.consolidation.max_episodes,
            self.clean_up,
        )
        switchboard = parts.config.switchboard
        forgetting = ForgetPropagation(parts.peers, switchboard.url if switchboard else None)
        return (
            QueueWork(CONSOLIDATION, consolidator.process, 1),
            QueueWork(FORGETTING, forgetting.process, 1),
        )

    async def route_accepted(
        self, connection: Connection, butler: str, route: RouteRequest
    ) -> None:
        """Record a routed message, in the transaction that accepts it."""
        if not self.config.record_messages:
            return
        keep = timedelta(days=self.config.retention.episode_days)
        recorded = await record_message(connection, butler, route, keep)
        settings = self.config.consolidation
        if recorded and settings.enabled:
            interval = timedelta(hours=settings.interval_hours)
            await plan_consolidation(connection, route.request.received_at, interval)

    async def session_context(self, session: SessionRequest) -> str | None:
        if session.trigger_source == TRIGGER or self.config.context.max_tokens == 0:
            return None
        request = session.request
        outside = request is not None and not request.is_owners
        now = request.received_at if request else datetime.now().astimezone()
        sender = request.source_sender_identity if request and outside else None
        return await self.block(
            BlockRequest(
                session.prompt, now, self.config.context.max_tokens, sender, session.request_id
            )
        )

    async def block(self, request: BlockRequest) -> str | None:
        return await compose_block(self._db, self.engine, request)

    async def clean_up(self, now: datetime) -> dict[str, int]:
        keep = self.config.retention.max_episodes
        return await clean_up(self._db, self.vectors, self._butler, now, keep)

    def embedding_state(self) -> str:
        embedder = self.vectors.embedder
        if not embedder.available:
            return NOT_INSTALLED
        return f"{embedder.model} ({'loaded' if embedder.loaded else 'loaded when first used'})"

    @property
    def _db(self) -> Database:
        if self._database is None:
            raise RuntimeError("the memory module is not started")
        return self._database
