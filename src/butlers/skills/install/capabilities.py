"""Capabilities of a skill, shown before an install, and the difference that an update makes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from butlers.skills.check.text import decoded, linear
from butlers.skills.formats.strict import RUNNING_FIELDS
from butlers.skills.names import script_language
from butlers.skills.skill import PackMcpServer, ServerKind, SkillSpec
from butlers.skills.tree import digest_file, walk

KINDS = (
    "scripts",
    "runs",
    "envVars",
    "network",
    "mcpServers",
    "systemPackages",
    "allowed-tools",
    "dependencies",
)
# Files that other clients act on: they start servers, or run commands at an event.
_RUN_FILES = frozenset({".mcp.json", "mcp.json", "hooks.json", "hooks/hooks.json"})
# Claude Code runs such a command when it loads the skill, and puts its output into the prompt.
_INLINE_COMMAND = linear(rb"!`([^`\n]+)`")
_CHARACTERS_PER_TOKEN = 4
_MAX_ITEM = 300  # characters of a capability


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Items by kind. Scripts that the skill does not declare count too.

    ``script_digests`` are the hashes of the scripts, by path; ``tokens`` estimates what a model reads of
    the skill: in a list of skills, and when the skill is opened.
    """

    by_kind: Mapping[str, tuple[str, ...]]
    script_digests: Mapping[str, str] = field(default_factory=dict)
    tokens: tuple[int, int] = (0, 0)

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
    scripts, runs = {*skill.scripts}, {*_commands_of(skill)}
    digests = {}
    for entry in walk(folder).files():
        if (
            entry.executable
            or entry.path in skill.scripts
            or script_language(entry.path) is not None
        ):
            scripts.add(entry.path)
            digests[entry.path] = digest_file(folder / entry.path)
        if entry.path in _RUN_FILES:
            runs.add(f"{entry.path}: {digest_file(folder / entry.path)}")
    return Capabilities(
        {
            "scripts": tuple(sorted(scripts)),
            "runs": tuple(sorted(runs)),
            "envVars": tuple(sorted(skill.env_vars)),
            "network": ("the whole network",) if skill.network else (),
            "mcpServers": tuple(_described(server) for server in skill.mcp_servers),
            "systemPackages": tuple(sorted(skill.system_packages)),
            "allowed-tools": tuple(sorted(skill.allowed_tools)),
            "dependencies": tuple(sorted(skill.dependencies)),
        },
        digests,
        (_tokens(skill.name) + _tokens(skill.description), _tokens(skill.instructions)),
    )


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _commands_of(skill: SkillSpec) -> Iterator[str]:
    """Yield what another client would run: hooks and servers of the front matter, inline commands."""
    for key in RUNNING_FIELDS:
        if key in skill.extra:
            yield _cut(f"{key}: {json.dumps(skill.extra[key], sort_keys=True)}")
    for found in _INLINE_COMMAND.finditer(skill.body.encode()):
        yield _cut(f"command in SKILL.md: {decoded(found[1])}")


def _cut(text: str) -> str:
    """Return the text, or its beginning and its hash, so that every change is a new capability."""
    if len(text) <= _MAX_ITEM:
        return text
    return f"{text[:_MAX_ITEM]}… (sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]})"


def difference(before: Capabilities, after: Capabilities) -> Difference:
    """Compare capabilities. A script with other content is a new capability."""
    added = _minus(after, before)
    changed = tuple(
        f"{path} (changed, {digest[:19]})"
        for path, digest in sorted(after.script_digests.items())
        if before.script_digests.get(path, digest) != digest
    )
    scripts = (*added.by_kind.get("scripts", ()), *changed)
    return Difference(Capabilities({**added.by_kind, "scripts": scripts}), _minus(before, after))


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
