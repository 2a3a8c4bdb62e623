"""The [reflex.groups] table: what each named group of the pattern means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from butlers.skills.reflexes.conversions import CONVERSIONS, convert
from butlers.skills.reflexes.converted import GroupRule, Moment
from butlers.skills.reflexes.money import CURRENCIES
from butlers.skills.reflexes.patterns import CompiledTrigger
from butlers.skills.reflexes.report import Spot, nearest

# Defaults and examples are tried at a fixed moment, so that a file is right or wrong for good.
TRIAL = Moment(datetime(2026, 1, 15, 12, tzinfo=UTC), ZoneInfo("UTC"))

_KEYS = ("type", "default", "required", "default_currency", "prefer")
_RESERVED = "result"


def read_groups(
    table: Any, trigger: CompiledTrigger | None, spot: Spot
) -> dict[str, GroupRule] | None:
    """A rule for every named group of the pattern; None when the pattern itself is not known."""
    if not isinstance(table, dict):
        spot.error("reflex-group", "'groups' must be a table")
        return None
    rules = {name: _read_rule(value, spot.under(name)) for name, value in table.items()}
    if trigger is None:
        return None
    for name in rules:
        if name not in trigger.groups:
            message = f"the pattern has no group named {name!r}"
            spot.under(name).error("reflex-group", message, hint=nearest(name, trigger.groups))
    if _RESERVED in trigger.groups:
        spot.error("reflex-group", "a group can not be named 'result', the tool's result is")
    return {name: rules.get(name, GroupRule()) for name in trigger.groups}


def _read_rule(value: Any, spot: Spot) -> GroupRule:
    table = {"type": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        spot.error(
            "reflex-group", "a group is a type or a table", hint='write "number", for example'
        )
        return GroupRule()
    spot.unknown_keys(table, _KEYS)
    kind = table.get("type", "text")
    if not isinstance(kind, str) or kind not in CONVERSIONS:
        hint = nearest(str(kind)[:100], CONVERSIONS)
        spot.under("type").error("reflex-group", "there is no such type", hint=hint)
        return GroupRule()
    rule = GroupRule(
        type=kind,
        default=_default(table, spot),
        required=_one_of(table, "required", (False, True), spot),
        default_currency=_currency(table, kind, spot),
        prefer=_one_of(table, "prefer", ("future", "past"), spot),
    )
    _check_default(rule, spot)
    return rule


def _one_of(table: dict[str, Any], key: str, allowed: tuple[Any, Any], spot: Spot) -> Any:
    value = table.get(key, allowed[0])
    if type(value) is type(allowed[0]) and value in allowed:
        return value
    message = f"{key!r} must be {allowed[0]!r} or {allowed[1]!r}"
    spot.under(key).error("reflex-group", message)
    return allowed[0]


def _default(table: dict[str, Any], spot: Spot) -> str | None:
    value = table.get("default")
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 10**15:
        return str(value)
    spot.under("default").error("reflex-group", "'default' must be a text or a number")
    return None


def _currency(table: dict[str, Any], kind: str, spot: Spot) -> str | None:
    value = table.get("default_currency")
    if value is None:
        return None
    if kind != "money":
        spot.under("default_currency").error("reflex-group", "'default_currency' is for money")
    elif not isinstance(value, str) or value not in CURRENCIES:
        message = "'default_currency' must be an ISO 4217 code"
        spot.under("default_currency").error(
            "reflex-group", message, hint='write "EUR", for example'
        )
    return value if isinstance(value, str) else None


def _check_default(rule: GroupRule, spot: Spot) -> None:
    if rule.default is not None and convert(rule.default, rule, TRIAL) is None:
        spot.under("default").error("reflex-group", f"the default is not a {rule.type}")
