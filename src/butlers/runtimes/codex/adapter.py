"""The runtime ``codex``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from butlers.domain.session import Access, SessionResult
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import McpServer, Terms
from butlers.runtimes.cli import CliRuntime, Transcript, make_folders
from butlers.runtimes.codex.catalog import PATIENCE_S, Catalog, bundled
from butlers.runtimes.codex.command import compose, compose_waiting
from butlers.runtimes.codex.transcript import CodexTranscript
from butlers.runtimes.codex.warm import WarmCodex


class CodexAdapter(CliRuntime):
    name = "codex"
    # Its sandbox knows folders, not commands: it can not hold a session to a list of literal ones.
    levels = frozenset({Access.SEALED, Access.FULL})
    added = MappingProxyType({Access.SEALED: 3_900, Access.FULL: 9_000})

    def __init__(self, executable: Path) -> None:
        super().__init__(executable)
        self.catalog = Catalog()

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult:
        await self._know_models(terms)
        result = await super().invoke(prompt, system_prompt, mcp_servers, env, terms)
        return replace(result, model=terms.model or self.catalog.default)  # its events name none

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> WarmCodex | None:
        if terms.grants.access is not Access.SEALED:
            return None
        prepare = partial(self._prepare, mcp_servers, env, terms)
        return WarmCodex(prepare, next(iter(mcp_servers), None), terms.model)

    async def _prepare(
        self, mcp_servers: Mapping[str, McpServer], env: Mapping[str, str], terms: Terms
    ) -> ProcessCommand:
        make_folders(terms)
        await self._know_models(terms)
        return compose_waiting(self.executable, mcp_servers, env, terms, self.catalog)

    def command(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> ProcessCommand:
        return compose(
            self.executable, prompt, system_prompt, mcp_servers, env, terms, self.catalog
        )

    def transcript(self, mcp_servers: Mapping[str, McpServer]) -> Transcript:
        (server,) = mcp_servers
        return CodexTranscript(server)

    async def _know_models(self, terms: Terms) -> None:
        if not self.catalog.models:  # asked once: it is part of the program
            patience_s = min(PATIENCE_S, terms.limits.startup_s)
            self.catalog = await asyncio.to_thread(bundled, self.executable, patience_s)
