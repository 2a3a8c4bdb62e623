"""The runtime ``claude-code``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import Invocation, McpServer, Terms
from butlers.runtimes.claude_code.command import compose
from butlers.runtimes.claude_code.transcript import ClaudeTranscript
from butlers.runtimes.claude_code.warm import WarmClaude
from butlers.runtimes.cli import CliRuntime, Transcript, make_folders
from butlers.runtimes.containment import contain


class ClaudeCodeAdapter(CliRuntime):
    name = "claude-code"
    program = "claude"
    package = "@anthropic-ai/claude-code"
    pinned = "2.1.325"
    default_model = "claude-opus-5-5"
    small_model = "claude-haiku-5-5"
    credentials = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
    settings = ("ANTHROPIC_BASE_URL",)
    levels = frozenset(Access)
    # Reminders of place and time; unless sealed, also its own tools.
    added = MappingProxyType({Access.SEALED: 2_300, Access.WORKSPACE: 13_000, Access.FULL: 90_000})

    def command(self, call: Invocation) -> ProcessCommand:
        return compose(self.executable, call)

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> WarmClaude | None:
        if terms.grants.access is not Access.SEALED:
            return None
        make_folders(terms)
        call = Invocation("", "", mcp_servers, env, terms)
        command = contain(compose(self.executable, call, butlers), call, self.settings[0])
        return WarmClaude(command, next(iter(mcp_servers), None))

    def transcript(self, call: Invocation) -> Transcript:
        (butler,) = call.mcp_servers
        return ClaudeTranscript(butler)
