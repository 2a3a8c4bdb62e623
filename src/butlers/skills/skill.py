"""A skill as it is read from any format, and a skill in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from butlers.domain.json_safe import FrozenDict

BUILT_IN = "built-in"


class ServerKind(StrEnum):
    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class PackMcpServer:
    """An MCP server of a pack: a command to start, or a URL to connect to."""

    name: str
    kind: ServerKind
    command: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    extra: Mapping[str, Any] = field(default_factory=FrozenDict)


@dataclass(frozen=True, slots=True)
class SkillSpec:
    """The fields of a skill. Names from outside are kept as written, even if they break our rules.

    ``name`` is SKILL.md's name and a manifest's id; ``title`` is the name for people. ``body`` is
    SKILL.md without its front matter, unchanged. ``metadata`` has no key that is a field here, and
    ``extra`` keeps unknown keys.
    """

    name: str
    description: str = ""
    body: str = ""
    version: str | None = None
    title: str = ""
    owner: str | None = None
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: tuple[str, ...] = ()
    trigger_patterns: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    env_vars: tuple[str, ...] = ()
    mcp_servers: tuple[PackMcpServer, ...] = ()
    dependencies: tuple[str, ...] = ()
    node_version: str | None = None
    system_packages: tuple[str, ...] = ()
    network: bool = False  # its scripts and servers ask for the network
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)
    extra: Mapping[str, Any] = field(default_factory=FrozenDict)
    # Facts about the folder, which no format writes.
    has_manifest: bool = False
    has_skill_md: bool = False

    def __post_init__(self) -> None:
        if self.title == self.name:  # so that both forms of a skill compare equal
            object.__setattr__(self, "title", "")

    @property
    def label(self) -> str:
        """`id@version`, as a configuration names it."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def instructions(self) -> str:
        return self.body.strip()

    def evolve(self, **changes: Any) -> SkillSpec:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Pack:
    """A skill in its folder. ``digest`` is its registered hash; None for a butler's own skill.

    Links may point into ``shared``.
    """

    folder: Path
    skill: SkillSpec
    digest: str | None = None
    shared: Path | None = None
