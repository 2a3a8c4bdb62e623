"""The runtime ``codex``."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import Invocation, McpServer, Terms
from butlers.runtimes.cli import CliRuntime, Transcript, make_folders
from butlers.runtimes.codex.command import CATALOG_S, Catalog, bundled, compose, compose_warm
from butlers.runtimes.codex.transcript import CodexTranscript
from butlers.runtimes.codex.warm import WarmCodex
from butlers.runtimes.containment import contain


class CodexAdapter(CliRuntime):
    name = "codex"
    program = "codex"
    package = "@openai/codex"
    pinned = "0.166.0"
    default_model = "gpt-6.1-sol"
    small_model = "gpt-6-luna"
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

    async def prepare(self, terms: Terms) -> None:
        make_folders(terms)
        if not self.catalog.models:  # asked once: they are part of the program
            timeout_s = min(CATALOG_S, terms.limits.startup_s)
            self.catalog = await bundled(self.executable, timeout_s)

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> WarmCodex | None:
        if terms.grants.access is not Access.SEALED:
            return None
        call = Invocation("", "", mcp_servers, env, terms)
        return WarmCodex(
            partial(self._warm_command, call), next(iter(mcp_servers), None), terms.model
        )

    def command(self, call: Invocation) -> ProcessCommand:
        return compose(self.executable, call, self.catalog)

    async def _warm_command(self, call: Invocation) -> ProcessCommand:
        await self.prepare(call.terms)
        command = compose_warm(self.executable, call, self.catalog)
        return contain(command, call, self.settings[0])

    def transcript(self, call: Invocation) -> Transcript:
        (butler,) = call.mcp_servers
        # Its events do not name the model.
        return CodexTranscript(butler, call.terms.model or self.catalog.default)
