"""Every text that a skill says, under the key where a manifest has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from butlers.skills.skill import Skill

# Where a manifest spells it otherwise; of what a skill says of itself no other field has two words.
_KEYS = {
    "name": "id",
    "title": "name",
    "allowed_tools": "allowedTools",
    "trigger_patterns": "triggerPatterns",
    "env_vars": "envVars",
    "mcp_servers": "mcpServers",
    "node_version": "nodeVersion",
    "system_packages": "systemPackages",
}


def texts_of(skill: Skill) -> Iterator[tuple[str, str]]:
    for one in fields(skill):
        key = _KEYS.get(one.name, one.name)
        yield from ((key, text) for text in _texts(getattr(skill, one.name)))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for key, item in value.items():
                yield from (key, *_texts(item))
        case list() | tuple():
            for item in value:
                yield from _texts(item)
        case _ if is_dataclass(value):
            for one in fields(value):
                yield from _texts(getattr(value, one.name))
