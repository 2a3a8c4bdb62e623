"""A runtime that is a command line: what differs is the command and how its events are read."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Protocol

from butlers.domain.errors import InternalError
from butlers.domain.session import Access, SessionResult
from butlers.process.runner import Event, ProcessCommand, ProcessEnd, run_events
from butlers.runtimes.base import McpServer, Terms, WarmCli


class Transcript(Protocol):
    """Reads the events of one session, in the order in which they come, and never raises on any."""

    def read(self, event: Event) -> bool:
        """True when this was the last event."""
        ...

    def result(self, ended: ProcessEnd) -> SessionResult: ...


class CliRuntime:
    """Writes the CLI's files into the session's private folder, runs it, and reads what it says."""

    name: ClassVar[str]
    levels: ClassVar[frozenset[Access]]  # the access levels that it can hold
    added: ClassVar[Mapping[Access, int]]  # bytes of a request, measured on the pinned version

    def __init__(self, executable: Path) -> None:
        self.executable = executable

    def own_bytes(self, access: Access) -> int:
        return self.added[access]

    def holds(self, access: Access) -> bool:
        return access in self.levels

    def withholds(self, access: Access, directory: Path) -> str | None:
        return None

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult:
        if not self.holds(terms.grants.access):
            raise InternalError(f"{self.name} can not hold a session at {terms.grants.access}")
        make_folders(terms)
        command = self.command(prompt, system_prompt, mcp_servers, env, terms)
        transcript = self.transcript(mcp_servers)
        return transcript.result(await run_events(command, terms.limits, transcript.read))

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> WarmCli | None:
        return None

    def command(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> ProcessCommand:
        """The command line; the files that it names are written here."""
        raise NotImplementedError

    def transcript(self, mcp_servers: Mapping[str, McpServer]) -> Transcript:
        raise NotImplementedError


def make_folders(terms: Terms) -> None:
    for folder in (terms.workspace.home, terms.workspace.tmp):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def own_environment(env: Mapping[str, str], terms: Terms, **more: str) -> dict[str, str]:
    """What the session was given, a HOME and a TMPDIR of its own, and the CLI's switches."""
    return {
        **env,
        "HOME": str(terms.workspace.home),
        "TMPDIR": str(terms.workspace.tmp),
        **more,
    }


def write_private(path: Path, text: str) -> Path:
    """A file that only this account reads: it may hold the session's token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return path
