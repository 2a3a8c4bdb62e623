"""Environment variables that public skills ask for in their metadata, in the spellings they use.

The standard has no field for them. Each client found another place: `metadata.openclaw.requires.env`,
`primaryEnv`, `env`, `required_environment_variables` and others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from butlers.skills.names import ENV_NAME, is_reserved_variable
from butlers.skills.skill import SkillSpec

MAX_VARIABLES = 50
_MAX_DEPTH = 6
_MAX_JSON = 64 * 1024
_MAX_VALUES = 2_000  # items that are looked at
# Keys that hold names of variables, in lower case and without `-` and `_`.
_KEYS = frozenset(
    {
        "env",
        "envs",
        "envvar",
        "envvars",
        "environment",
        "environmentvariables",
        "primaryenv",
        "requiredenv",
        "requiredenvs",
        "requiredenvvars",
        "requiredenvironmentvariables",
        "requiresenv",
        "optionalenv",
        "optionalenvvars",
    }
)
_NAME_KEYS = ("name", "key", "variable", "var", "env")
# Names as variables are usually written; `env: production` names none.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,127}", re.ASCII)
_SEPARATORS = re.compile(r"[\s,;]+")


def wanted_variables(skill: SkillSpec) -> tuple[str, ...]:
    """Return the variables that the skill's metadata and unknown fields ask for, in order."""
    budget = iter(range(_MAX_VALUES))
    found: dict[str, None] = {}
    for place in (skill.metadata, skill.extra):
        for name in _search(place, 0, budget):
            if len(found) < MAX_VARIABLES and not is_reserved_variable(name):
                found[name] = None
    return tuple(found)


def with_wanted_variables(skill: SkillSpec) -> SkillSpec:
    """Return the skill with the variables of its metadata among those that it declares."""
    declared = tuple(dict.fromkeys((*skill.env_vars, *wanted_variables(skill))))
    return skill if declared == skill.env_vars else skill.evolve(env_vars=declared)


def _search(value: Any, depth: int, budget: Iterator[int]) -> Iterator[str]:
    value = _parsed(value)
    if depth > _MAX_DEPTH or not isinstance(value, Mapping):
        return
    for key, item in value.items():
        if next(budget, None) is None:
            return
        if key.replace("_", "").replace("-", "").lower() in _KEYS:
            yield from _names(item, budget)
        else:
            yield from _search(item, depth + 1, budget)


def _parsed(value: Any) -> Any:
    """Return the value of JSON in a string, which some clients require in metadata."""
    if isinstance(value, str) and len(value) <= _MAX_JSON and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value


def _names(value: Any, budget: Iterator[int]) -> Iterator[str]:
    match _parsed(value):
        case str(text):
            words = _SEPARATORS.split(text[:_MAX_JSON])
        case Mapping() as table:
            named = [table[key] for key in _NAME_KEYS if isinstance(table.get(key), str)]
            words = [str(word) for word in (named[:1] or table)]
            yield from (name for item in table.values() for name in _listed(item, budget))
        case list() | tuple() as items:
            words = []
            yield from (name for name in _listed(items, budget))
        case _:
            return
    yield from (word for word in words if _VARIABLE.fullmatch(word) and ENV_NAME.fullmatch(word))


def _listed(value: Any, budget: Iterator[int]) -> Iterator[str]:
    """Yield the names of a list: of texts, or of tables such as `{name: API_KEY, required: true}`."""
    for item in value if isinstance(value, list | tuple) else ():
        if next(budget, None) is None:
            return
        if isinstance(item, str | Mapping):
            yield from _names(item, budget)
