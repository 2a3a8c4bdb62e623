"""The runtime ``gemini``."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import Invocation
from butlers.runtimes.cli import CliRuntime, Transcript
from butlers.runtimes.gemini.command import MODEL, SETTINGS_FOLDER, alias, compose, has_settings
from butlers.runtimes.gemini.transcript import GeminiTranscript


class GeminiAdapter(CliRuntime):
    name = "gemini"
    program = "gemini"
    package = "@google/gemini-cli"
    pinned = "0.61.0"
    default_model = MODEL
    small_model = "gemini-2.5-flash-lite"
    credentials = ("GEMINI_API_KEY",)
    settings = ("GOOGLE_GEMINI_BASE_URL",)
    levels = frozenset(Access)
    added = MappingProxyType({Access.SEALED: 4_800, Access.WORKSPACE: 12_000, Access.FULL: 30_000})

    def withholds(self, access: Access, directory: Path) -> str | None:
        if access is Access.SEALED or not has_settings(directory):
            return None
        obeyed = f"because it would obey {SETTINGS_FOLDER} there"
        return f"{self.name} does not run in the butler's folder, {obeyed}"

    def command(self, call: Invocation) -> ProcessCommand:
        return compose(self.executable, call)

    def transcript(self, call: Invocation) -> Transcript:
        (server,) = call.mcp_servers
        return GeminiTranscript(alias(server))
