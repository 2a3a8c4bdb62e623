"""The runtime ``codex``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from butlers.domain.session import Access, SessionResult
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import McpServer, Terms
from butlers.runtimes.cli import CliRuntime, Transcript, make_folders
from butlers.runtimes.codex.command import CATALOG_S, Catalog, bundled, compose, compose_warm
from butlers.runtimes.codex.transcript import CodexTranscript
from butlers.runtimes.codex.warm import WarmCodex


class CodexAdapter(CliRuntime):
    name = "codex"
    program = "codex"
    package = "@openai/codex"
    pinned = "0.166.0"
    credentials = ("OPENAI_API_KEY",)
    settings = ("OPENAI_BASE_URL",)
    # Its sandbox limits folders, not commands, so it cannot hold a session to a list of commands.
    levels = frozenset({Access.SEALED, Access.FULL})
    added = MappingProxyType({Access.SEALED: 3_900, Access.FULL: 9_000})

    def __init__(self, executable: Path) -> None:
        super().__init__(executable)
        self.catalog = Catalog()

    @classmethod
    def find(cls, search_path: str) -> Path | None:
        """Return the native binary: npm's program is a wrapper that leaves an orphan when it is killed."""
        found = super().find(search_path)
        real = None if found is None else Path(os.path.realpath(found))
        if real is None or real.name != "codex.js":
            return found
        package = real.parent.parent
        for root in (package / "node_modules" / "@openai", package.parent):
            for binary in sorted(root.glob("codex-*/vendor/*/bin/codex")):
                return binary
        return found

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult:
        await self._load_models(terms)
        result = await super().invoke(prompt, system_prompt, mcp_servers, env, terms)
        return replace(
            result, model=terms.model or self.catalog.default
        )  # its events do not name it

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
        await self._load_models(terms)
        return compose_warm(self.executable, mcp_servers, env, terms, self.catalog)

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

    async def _load_models(self, terms: Terms) -> None:
        if not self.catalog.models:  # asked once: they are part of the program
            timeout_s = min(CATALOG_S, terms.limits.startup_s)
            self.catalog = await asyncio.to_thread(bundled, self.executable, timeout_s)
