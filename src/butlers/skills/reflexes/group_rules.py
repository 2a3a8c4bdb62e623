"""Read the rules of a reflex's named groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from butlers.skills.reflexes.examples import CHECK_MOMENT
from butlers.skills.reflexes.patterns import CompiledTrigger
from butlers.skills.reflexes.positions import FilePosition, nearest
from butlers.skills.reflexes.quantities import CURRENCIES
from butlers.skills.reflexes.reflex import CONVERSIONS, convert
from butlers.skills.reflexes.values import GroupRule

_GROUP_KEYS = ("type", "default", "required", "default_currency", "prefer")
_RESERVED = ("result", "list")


def read_groups(
    table: Any, triggers: Sequence[CompiledTrigger], position: FilePosition
) -> dict[str, GroupRule] | None:
    """Return a rule for every named group of the patterns, or None without a valid pattern."""
    if not isinstance(table, dict):
        position.error("reflex-group", "'groups' must be a table")
        return None
    rules = {name: _read_rule(value, position.under(name)) for name, value in table.items()}
    if not triggers:
        return None
    named = tuple(dict.fromkeys(name for trigger in triggers for name in trigger.groups))
    for name in rules:
        if name not in named:
            message = f"the pattern has no group named {name!r}"
            position.under(name).error("reflex-group", message, hint=nearest(name, named))
    for name in _RESERVED:
        if name in named:
            position.error(
                "reflex-group", f"a group cannot be named {name!r}; that name is the tool's result"
            )
    return {name: rules.get(name, GroupRule()) for name in named}


def _read_rule(value: Any, position: FilePosition) -> GroupRule:
    table = {"type": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        position.error(
            "reflex-group", "a group is a type or a table", hint='write "number", for example'
        )
        return GroupRule()
    position.unknown_keys(table, _GROUP_KEYS)
    kind = table.get("type", "text")
    if not isinstance(kind, str) or kind not in CONVERSIONS:
        hint = nearest(str(kind)[:100], CONVERSIONS)
        position.under("type").error("reflex-group", "unknown type", hint=hint)
        return GroupRule()
    rule = GroupRule(
        type=kind,
        default=_default(table, position),
        required=_one_of(table, "required", (False, True), position),
        default_currency=_currency(table, kind, position),
        prefer=_one_of(table, "prefer", ("future", "past"), position),
    )
    _check_default(rule, position)
    return rule


def _one_of(
    table: dict[str, Any], key: str, allowed: tuple[Any, Any], position: FilePosition
) -> Any:
    value = table.get(key, allowed[0])
    if type(value) is type(allowed[0]) and value in allowed:
        return value
    message = f"{key!r} must be {allowed[0]!r} or {allowed[1]!r}"
    position.under(key).error("reflex-group", message)
    return allowed[0]


def _default(table: dict[str, Any], position: FilePosition) -> str | None:
    value = table.get("default")
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 10**15:
        return str(value)
    position.under("default").error("reflex-group", "'default' must be text or a number")
    return None


def _currency(table: dict[str, Any], kind: str, position: FilePosition) -> str | None:
    value = table.get("default_currency")
    if value is None:
        return None
    if kind != "money":
        position.under("default_currency").error("reflex-group", "'default_currency' is for money")
    elif not isinstance(value, str) or value not in CURRENCIES:
        message = "'default_currency' must be an ISO 4217 code"
        position.under("default_currency").error(
            "reflex-group", message, hint='write "EUR", for example'
        )
    return value if isinstance(value, str) else None


def _check_default(rule: GroupRule, position: FilePosition) -> None:
    if rule.default is not None and convert(rule.default, rule, CHECK_MOMENT) is None:
        position.under("default").error("reflex-group", f"the default is not a {rule.type}")
