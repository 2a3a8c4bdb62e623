"""Rules that a skill must satisfy before it is written, registered or constructed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from butlers.domain.errors import InvalidSkill
from butlers.skills import names
from butlers.skills.formats.base import split_tools
from butlers.skills.skill import SkillSpec
from butlers.skills.versions import parse_range, parse_requirement

VERSION, TRIGGERS = "version", "trigger_patterns"
# Fields that the standard lacks are stored as JSON under metadata, which every client ignores.
PACK = "butlers.pack"
# These metadata keys are fields; no other value may use them.
RESERVED_METADATA = (VERSION, TRIGGERS, PACK)
FRONT_MATTER = (
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
    VERSION,
    TRIGGERS,
)
# Fields of SKILL.md that are no part of the standard and make a client run something.
RUNNING_FIELDS = (
    "hooks",
    "mcpServers",
    "mcp-servers",
    "mcp_servers",
    "command",
    "commands",
    "install",
    "setup",
    "shell",
)
# Integers that JSON and YAML parsers agree on.
_MAX_INTEGER = 10**30


def require_writable(skill: SkillSpec) -> None:
    """Raise InvalidSkill with every reason why the skill would not survive writing and reading."""
    problems = list(problems_of(skill))
    if problems:
        raise InvalidSkill(
            f"the skill {skill.name[:64]!r} cannot be written: {'; '.join(problems)}",
            hint="`butlers skills check FOLDER` shows where",
        )


def problems_of(skill: SkillSpec) -> Iterator[str]:
    if not names.is_id(skill.name):
        yield "its name is not lower-case words joined by single hyphens"
    if not 0 < len(skill.description) <= names.MAX_DESCRIPTION:
        yield f"its description must have 1 to {names.MAX_DESCRIPTION} characters"
    if skill.description != skill.description.strip():
        yield "its description begins or ends with whitespace"
    if skill.version is not None and not names.is_version(skill.version):
        yield f"its version {skill.version[:40]!r} is not MAJOR.MINOR.PATCH"
    if not 0 < len(skill.compatibility or "any") <= names.MAX_COMPATIBILITY:
        yield f"its compatibility must have 1 to {names.MAX_COMPATIBILITY} characters"
    if split_tools(" ".join(skill.allowed_tools)) != skill.allowed_tools:
        yield "its allowed tools are not single words"
    yield from _pack_problems(skill)
    for field, reserved in ((skill.metadata, RESERVED_METADATA), (skill.extra, FRONT_MATTER)):
        yield from (f"{key!r} has a field of its own" for key in field if key in reserved)
    if not is_plain(_everything(skill), 0):
        yield "it has values that are not string, number, list or map, or has broken characters"


def _pack_problems(skill: SkillSpec) -> Iterator[str]:
    for path in (*skill.context, *skill.scripts):
        if names.inner_path(path) != path:
            yield f"{path[:80]!r} is not a path inside the skill"
    for name in skill.env_vars:
        if not names.ENV_NAME.fullmatch(name):
            yield f"{name[:80]!r} is not a valid environment variable name"
    for written in skill.dependencies:
        if parse_requirement(written) is None:
            yield f"the dependency {written[:80]!r} is not id, id@version or id@range"
    for package in skill.system_packages:
        if not names.SYSTEM_PACKAGE.fullmatch(package):
            yield f"{package[:80]!r} is not a valid system package name"
    if skill.node_version is not None and parse_range(skill.node_version) is None:
        yield "its nodeVersion is not a version range"
    if "" in (skill.license, skill.compatibility, skill.owner, skill.node_version):
        yield "a field is an empty string"


def _everything(skill: SkillSpec) -> list[Any]:
    servers = [
        [server.name, server.command, server.url, server.args] for server in skill.mcp_servers
    ]
    extras = [server.extra for server in skill.mcp_servers]
    texts = [skill.description, skill.body, skill.title, skill.owner, skill.license]
    more = [skill.compatibility, skill.allowed_tools, skill.trigger_patterns]
    return [texts, more, servers, extras, skill.metadata, skill.extra]


def is_plain(value: Any, depth: int) -> bool:
    """Return True if every format can write the value; ``depth`` counts the levels around it."""
    if depth > 20:
        return False
    match value:
        case None | bool():
            return True
        case int():
            return abs(value) < _MAX_INTEGER
        case float():
            return math.isfinite(value)
        case str():
            return _is_text(value)
        case Mapping():
            return all(
                isinstance(key, str) and _is_text(key) and is_plain(item, depth + 1)
                for key, item in value.items()
            )
        case list() | tuple():
            return all(is_plain(item, depth + 1) for item in value)
    return False


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
