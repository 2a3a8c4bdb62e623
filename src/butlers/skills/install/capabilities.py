"""Capabilities of a skill, shown before an install, and the difference that an update makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from butlers.skills.names import script_language
from butlers.skills.skill import PackMcpServer, ServerKind, SkillSpec
from butlers.skills.tree import walk

KINDS = ("scripts", "envVars", "mcpServers", "systemPackages", "allowed-tools", "dependencies")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Items by kind. Scripts that the skill does not declare count too."""

    by_kind: Mapping[str, tuple[str, ...]]

    def as_dict(self) -> dict[str, list[str]]:
        return {kind: list(self.by_kind.get(kind, ())) for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Difference:
    added: Capabilities
    removed: Capabilities

    @property
    def widens(self) -> bool:
        return any(self.added.by_kind.values())


def capabilities_of(folder: Path, skill: SkillSpec) -> Capabilities:
    scripts = {*skill.scripts}
    for entry in walk(folder).files():
        if entry.executable or script_language(entry.path) is not None:
            scripts.add(entry.path)
    return Capabilities(
        {
            "scripts": tuple(sorted(scripts)),
            "envVars": tuple(sorted(skill.env_vars)),
            "mcpServers": tuple(_described(server) for server in skill.mcp_servers),
            "systemPackages": tuple(sorted(skill.system_packages)),
            "allowed-tools": tuple(sorted(skill.allowed_tools)),
            "dependencies": tuple(sorted(skill.dependencies)),
        }
    )


def difference(before: Capabilities, after: Capabilities) -> Difference:
    return Difference(_minus(after, before), _minus(before, after))


def _minus(one: Capabilities, other: Capabilities) -> Capabilities:
    return Capabilities(
        {
            kind: tuple(item for item in items if item not in other.by_kind.get(kind, ()))
            for kind, items in one.by_kind.items()
        }
    )


def _described(server: PackMcpServer) -> str:
    """Return the whole command or address, so that a change of it is a new capability."""
    if server.kind is ServerKind.REMOTE:
        return f"{server.name}: {server.url}"
    return " ".join((f"{server.name}:", server.command or "", *server.args))
