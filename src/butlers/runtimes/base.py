"""The protocol of every runtime: it turns a prompt into calls of one butler's tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from butlers.domain.message import RequestContext
from butlers.domain.session import Access, SessionResult
from butlers.process.runner import TimeLimits

# The variable that tells a session's CLI its servers. It holds the token, so the CLI's own child processes
# must not have it.
MCP_SERVERS = "MCP_SERVERS"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
# Files with the certificates of further authorities.
AUTHORITIES = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# Every CLI needs these to reach its model, if the configuration declares them.
NETWORK = (*PROXIES, *(name.lower() for name in PROXIES), *AUTHORITIES)


@dataclass(frozen=True, slots=True)
class McpServer:
    """The one endpoint that a session may reach, and the token that opens it."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of a session: its butler's, and a private one that is removed when the session ends."""

    cwd: Path  # the butler's config folder
    private: Path  # of this session alone, mode 0700
    hidden: tuple[Path, ...] = ()  # folders that no session sees, except for its own inside them

    @property
    def home(self) -> Path:
        return self.private / "home"

    @property
    def tmp(self) -> Path:
        return self.private / "tmp"


@dataclass(frozen=True, slots=True)
class Grants:
    """Files and commands that a session may use beside its butler's tools, listed literally."""

    access: Access = Access.SEALED
    readable: tuple[Path, ...] = ()  # folders, absolute
    writable: tuple[Path, ...] = ()  # files, absolute
    commands: tuple[str, ...] = ()  # literal: "ls skills/", "python skills/morning-briefing/run.py"


@dataclass(frozen=True, slots=True)
class Terms:
    """The conditions under which a session runs."""

    workspace: Workspace
    grants: Grants = Grants()
    limits: TimeLimits = field(default_factory=TimeLimits)
    model: str | None = None  # None: the CLI's default
    args: tuple[str, ...] = ()  # from the configuration, added to the command line
    request: RequestContext | None = None
    skills: bool = False  # its home holds skills that the CLI is to load by itself
    brokered: bool = False  # the key broker repeats failed requests, so the CLI does not


@dataclass(frozen=True, slots=True)
class Invocation:
    """Everything that one session is started with."""

    prompt: str
    system_prompt: str
    mcp_servers: Mapping[str, McpServer]
    env: Mapping[str, str] = field(repr=False)
    terms: Terms


class NotWarm(Exception):
    """A warm process cannot be used. Nothing was asked of it, so the session can start cold."""


class WarmCli(Protocol):
    """A CLI that has booted and waits for one prompt. It serves one session."""

    @property
    def alive(self) -> bool: ...

    async def boot(self, expected: str | None = None) -> None:
        """Wait until it is ready, or raise ``NotWarm``.

        ``expected`` is the system prompt of the probable session, for a CLI that can prepare for it and
        still be asked with another.
        """
        ...

    async def connect(self, mcp_servers: Mapping[str, McpServer]) -> None:
        """Connect a process that was booted without a butler, or raise ``NotWarm``."""
        ...

    async def ask(self, prompt: str, system_prompt: str, limits: TimeLimits) -> SessionResult:
        """Run the session. Raise ``NotWarm`` if it could not be asked."""
        ...

    async def close(self) -> None: ...


class Runtime(Protocol):
    @property
    def name(self) -> str: ...

    def own_bytes(self, access: Access) -> int:
        """Bytes that it adds to a request beside the system prompt, the tools and the prompt."""
        ...

    def holds(self, access: Access) -> bool:
        """Return whether this runtime can keep a session within that access level."""
        ...

    def withholds(self, access: Access, directory: Path) -> str | None:
        """Return what of that level it does not give a session of this folder, and why; None: nothing."""
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
        self,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
        butlers: Collection[str] = (),
    ) -> WarmCli | None:
        """Return a process to boot in advance; None where this runtime has none.

        Without ``mcp_servers`` it boots without a token and can be connected to any of ``butlers``.
        """
        ...
