"""Base of the runtimes that are command-line programs. They differ in the command and in how events are read.

A subclass is registered by the folder that it lives in (see ``registry``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from butlers.domain.errors import InternalError
from butlers.domain.session import Access, SessionResult
from butlers.process.runner import (
    EndReason,
    Event,
    ProcessCommand,
    ProcessEnd,
    ScriptLimits,
    run_events,
    run_script,
)
from butlers.runtimes.base import Grants, Invocation, McpServer, Terms, WarmCli
from butlers.runtimes.containment import contain, publish

_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.-]*")
_VERSION_S = 20.0
_LITERAL = re.compile(r"[\w./ -]+")  # nothing that a shell or a permission rule would interpret


class Transcript(Protocol):
    """Reads the events of one session in order. No event makes it raise."""

    def read(self, event: Event) -> bool:
        """Return True if this was the last event."""
        ...

    def result(self, ended: ProcessEnd) -> SessionResult: ...


class CliRuntime:
    """Writes the CLI's files into the session's private folder, runs it, and reads its events."""

    name: ClassVar[str]
    program: ClassVar[str]  # to be found on the PATH
    package: ClassVar[str]  # on npm
    pinned: ClassVar[str]  # version that the contract tests run
    default_model: ClassVar[str]  # of the pinned version, if the configuration names none
    small_model: ClassVar[str]  # cheap, and good enough to choose a butler for a message
    credentials: ClassVar[tuple[str, ...]]  # any one of them is enough; errors name the first
    # More variables, if the configuration declares them. The first one is the address of the model's API.
    settings: ClassVar[tuple[str, ...]]
    levels: ClassVar[frozenset[Access]]  # the access levels that it can hold
    added: ClassVar[Mapping[Access, int]]  # bytes of a request, measured on the pinned version

    def __init__(self, executable: Path) -> None:
        self.executable = executable

    @classmethod
    def find(cls, search_path: str) -> Path | None:
        """Return the program to run, if it is installed."""
        found = shutil.which(cls.program, path=search_path)
        return None if found is None else Path(found)

    @classmethod
    def stated_version(cls, executable: Path) -> str | None:
        """Return the version of an installation by npm, without starting it; None: another installation."""
        for folder in Path(os.path.realpath(executable)).parents:
            try:
                about = json.loads((folder / "package.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            if isinstance(about, dict) and str(about.get("name", "")).startswith(cls.package):
                found = _VERSION.match(str(about.get("version", "")))
                return found[0] if found else None
        return None

    @classmethod
    def install_hint(cls) -> str:
        return f"npm install -g {cls.package}@{cls.pinned}"

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
            raise InternalError(f"{self.name} cannot hold a session at {terms.grants.access}")
        await self.prepare(terms)
        call = Invocation(prompt, system_prompt, mcp_servers, env, terms)
        command, transcript = self.contained(call), self.transcript(call)
        try:
            ended = await run_events(command, terms.limits, transcript.read)
        finally:
            if command.sandbox is not None:
                publish(call)
        return transcript.result(ended)

    def warm(
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> WarmCli | None:
        return None

    async def prepare(self, terms: Terms) -> None:
        make_folders(terms)

    def contained(self, call: Invocation) -> ProcessCommand:
        """Return the command in the sandbox of the session's access level."""
        return contain(self.command(call), call, self.settings[0])

    def command(self, call: Invocation) -> ProcessCommand:
        """Return the command line, and write the files that it names."""
        raise NotImplementedError

    def transcript(self, call: Invocation) -> Transcript:
        raise NotImplementedError


async def installed_version(executable: Path, environ: Mapping[str, str]) -> str | None:
    """Return the version that the program reports; None if it does not report one."""
    command = ProcessCommand((str(executable), "--version"), environ, Path.cwd())
    try:
        ended = await run_script(command, ScriptLimits(seconds=_VERSION_S))
    except OSError:
        return None
    if ended.reason is not EndReason.EXITED:
        return None
    found = _VERSION.search(ended.stdout.decode("utf-8", "replace"))
    return found[0] if found else None


def make_folders(terms: Terms) -> None:
    for folder in (terms.workspace.home, terms.workspace.tmp):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def own_environment(env: Mapping[str, str], terms: Terms, **more: str) -> dict[str, str]:
    """Return the session's environment with its own HOME and TMPDIR, and the CLI's switches."""
    return {
        **env,
        "HOME": str(terms.workspace.home),
        "TMPDIR": str(terms.workspace.tmp),
        **more,
    }


def write_private(path: Path, text: str) -> Path:
    """Write a file that only this account can read: it may hold the session's token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    return path


def describe_servers(servers: Mapping[str, McpServer]) -> dict[str, Any]:
    """Return the MCP configuration in the format that most CLIs read."""
    return {
        "mcpServers": {
            name: {
                "type": "http",
                "url": server.url,
                "headers": {"Authorization": f"Bearer {server.token}"},
            }
            for name, server in servers.items()
        }
    }


def safe_commands(grants: Grants, cwd: Path) -> tuple[str, ...]:
    """Return the granted commands that a shell reads literally and that stay in the readable folders."""
    folders = [folder.resolve() for folder in grants.readable]
    return tuple(one for one in grants.commands if _literal(one) and _inside(one, cwd, folders))


def _literal(command: str) -> bool:
    return _LITERAL.fullmatch(command) is not None and ".." not in command and bool(command.split())


def _inside(command: str, cwd: Path, folders: list[Path]) -> bool:
    places = [(cwd / word).resolve() for word in command.split()[1:]]
    return all(any(place.is_relative_to(folder) for folder in folders) for place in places)
