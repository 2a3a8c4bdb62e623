"""The one SkillSpec, whichever form it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from butlers.domain.json_safe import FrozenDict

BUILT_IN = "built-in"


class ServerKind(StrEnum):
    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class PackMcpServer:
    """A server that a pack brings: a command to start, or an address to reach."""

    name: str
    kind: ServerKind
    command: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    extra: Mapping[str, Any] = field(default_factory=FrozenDict)


@dataclass(frozen=True, slots=True)
class SkillSpec:
    """What a skill says of itself. Lenient: a stranger's names are kept as written.

    ``name`` is the standard's name and a manifest's id; ``title`` is what people call it.
    ``body`` is SKILL.md without its front matter, to the letter. ``metadata`` never holds a field
    that has a place here, and ``extra`` keeps the keys that nobody defined.
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
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)
    extra: Mapping[str, Any] = field(default_factory=FrozenDict)
    # Facts of the folder, which no format renders.
    has_manifest: bool = False
    has_skill_md: bool = False
    has_reflex: bool = False

    def __post_init__(self) -> None:
        if self.title == self.name:  # said once is enough, in every form
            object.__setattr__(self, "title", "")

    @property
    def label(self) -> str:
        """`id@version`, the way a configuration names it."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def instructions(self) -> str:
        return self.body.strip()

    def evolve(self, **changes: Any) -> SkillSpec:
        return replace(self, **changes)
