"""What every runtime is: something that turns a prompt into calls of one butler's tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from butlers.domain.request import RequestContext
from butlers.domain.session import Access, SessionResult
from butlers.process.runner import TimeLimits

# The variable in which a session's CLI is told its servers. It holds the token, so that what the CLI runs
# is not to have it.
MCP_SERVERS = "MCP_SERVERS"


@dataclass(frozen=True, slots=True)
class McpServer:
    """The one endpoint a session may reach, and the token that opens it."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a session lives: its butler's folder, and a private one that is gone when it ends."""

    cwd: Path  # the butler's config folder
    private: Path  # of this session alone, mode 0700

    @property
    def home(self) -> Path:
        return self.private / "home"

    @property
    def tmp(self) -> Path:
        return self.private / "tmp"


@dataclass(frozen=True, slots=True)
class Grants:
    """What a session may touch beside its butler's tools, spelled out. Sealed: nothing."""

    access: Access = Access.SEALED
    readable: tuple[Path, ...] = ()  # folders, absolute
    writable: tuple[Path, ...] = ()  # files, absolute
    commands: tuple[str, ...] = ()  # literal: "ls skills/", "python skills/morning-briefing/run.py"


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a session runs."""

    workspace: Workspace
    grants: Grants = Grants()
    limits: TimeLimits = field(default_factory=TimeLimits)
    model: str | None = None  # None: what the CLI takes by itself
    args: tuple[str, ...] = ()  # the owner's own, added to the command line
    request: RequestContext | None = None
    skills: bool = False  # its home holds skills that the CLI is to load by itself


class NotWarm(Exception):
    """A process that was to be ready in advance is not; a cold one has to do."""


class Warm(Protocol):
    """A CLI that has booted, reached its butler and listed its tools, and waits for a prompt.

    One process is one session: it is asked once.
    """

    @property
    def alive(self) -> bool: ...

    async def boot(self, expected: str | None = None) -> None:
        """Until it is ready, or ``NotWarm``. ``expected``: the system prompt that it will probably be asked
        with, for a CLI that can prepare for one and still be asked with another."""
        ...

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        """What came of it; ``NotWarm`` when nothing was asked yet, so that a cold one can."""
        ...

    async def close(self) -> None: ...


class Blank(Warm, Protocol):
    """One that knows no butler while it waits: it has to meet its own before it can be asked."""

    async def meet(self, mcp_servers: Mapping[str, McpServer]) -> None:
        """Until it has reached it, or ``NotWarm``."""
        ...


class Runtime(Protocol):
    @property
    def name(self) -> str: ...

    def own_bytes(self, access: Access) -> int:
        """What it puts into a request by itself, beside the system prompt, the tools and the prompt."""
        ...

    def holds(self, access: Access) -> bool:
        """Whether this runtime can keep a session within that level."""
        ...

    def withholds(self, access: Access, directory: Path) -> str | None:
        """What of that level it does not give a session of this folder, and why; None: nothing."""
        ...

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult: ...

    def warm(
        self, mcp_servers: Mapping[str, McpServer], env: Mapping[str, str], terms: Terms
    ) -> Warm | None:
        """A process to be booted in advance; None where this runtime has no such thing."""
        ...

    def blank(self, butlers: Collection[str], env: Mapping[str, str], terms: Terms) -> Blank | None:
        """The same for a session of any of these butlers, without a token of theirs."""
        ...
