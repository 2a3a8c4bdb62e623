"""Turn a TOML document into reflexes and report every problem at its place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from butlers.domain.errors import InvalidArguments
from butlers.skills.reflexes.examples import CHECK_MOMENT, check_examples
from butlers.skills.reflexes.patterns import (
    CompiledTrigger,
    Placeholder,
    Template,
    TemplateError,
    compile_trigger,
    parse_template,
)
from butlers.skills.reflexes.positions import FilePosition, nearest
from butlers.skills.reflexes.quantities import CURRENCIES
from butlers.skills.reflexes.reflex import CONVERSIONS, Reflex, convert
from butlers.skills.reflexes.values import GroupRule

VERSION = 1
MAX_REFLEXES = 100
MAX_EXAMPLES = 20

_KEYS = ("name", "pattern", "tool", "reply", "reply_empty", "examples", "groups", "arguments")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


def read_reflexes(document: dict[str, Any], skill: str, root: FilePosition) -> list[Reflex]:
    """Read every reflex of a document. Problems go to the findings of ``root``."""
    if not _check_version(document, root):
        return []
    root.unknown_keys(document, ("version", "reflex"))
    tables = document.get("reflex", [])
    if not isinstance(tables, list) or len(tables) > MAX_REFLEXES:
        message = f"'reflex' must be a list of at most {MAX_REFLEXES} tables"
        root.under("reflex").error("reflex-value", message, hint="start each with [[reflex]]")
        return []
    if not tables:
        root.findings.add("reflex-empty", "the file has no [[reflex]]")
    found = [_read_entry(table, index, skill, root) for index, table in enumerate(tables)]
    _check_names(tables, root)
    return [reflex for reflex in found if reflex is not None]


def _check_version(document: dict[str, Any], root: FilePosition) -> bool:
    version = document.get("version")
    if type(version) is int and version == VERSION:
        return True
    message = "'version' is missing" if version is None else "unknown format version"
    root.under("version").error("reflex-version", message, hint=f"write version = {VERSION}")
    return False


def _check_names(tables: list[Any], root: FilePosition) -> None:
    seen: set[str] = set()
    for index, table in enumerate(tables):
        name = table.get("name") if isinstance(table, dict) else None
        if isinstance(name, str) and name in seen:
            position = root.under("reflex", index, "name").named(name)
            position.error("reflex-duplicate", f"a second reflex named {name!r}")
        elif isinstance(name, str):
            seen.add(name)


def _read_entry(table: Any, index: int, skill: str, root: FilePosition) -> Reflex | None:
    position = root.under("reflex", index).named(f"#{index + 1}")
    if not isinstance(table, dict):
        position.error(
            "reflex-value", "a reflex must be a table", hint="start each with [[reflex]]"
        )
        return None
    if isinstance(table.get("name"), str) and table["name"]:
        position = position.named(table["name"][:64])
    return _Entry(table, position).read(skill)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One [[reflex]] table being read."""

    table: dict[str, Any]
    position: FilePosition

    def read(self, skill: str) -> Reflex | None:
        self.position.unknown_keys(self.table, _KEYS)
        name = self._word("name", _NAME, "lower-case letters, digits, '-' and '_'")
        trigger = self._trigger()
        tool = self._word("tool", _TOOL, "a tool's name") if "tool" in self.table else None
        groups = read_groups(self.table.get("groups", {}), trigger, self.position.under("groups"))
        arguments = self._arguments(groups)
        reply = self._reply("reply", groups, arguments)
        empty = (
            self._reply("reply_empty", groups, arguments) if "reply_empty" in self.table else None
        )
        examples = self._examples()
        if name is None or trigger is None or groups is None or reply is None:
            return None
        file = self.position.findings.file
        reflex = Reflex(skill, name, file, trigger, groups, arguments, tool, reply, empty, examples)
        check_examples(reflex, self.position.under("examples"))
        return reflex

    def _text(self, key: str) -> str | None:
        value = self.table.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if value is None:
            self.position.error("reflex-missing-key", f"{key!r} is missing")
        else:
            self.position.under(key).error("reflex-value", f"{key!r} must be non-empty text")
        return None

    def _word(self, key: str, shape: re.Pattern[str], allowed: str) -> str | None:
        word = self._text(key)
        if word is not None and not shape.fullmatch(word):
            self.position.under(key).error("reflex-value", f"{key!r} must be {allowed}")
            return None
        return word

    def _trigger(self) -> CompiledTrigger | None:
        pattern = self._text("pattern")
        if pattern is None:
            return None
        try:
            return compile_trigger(pattern)
        except InvalidArguments as error:
            self.position.under("pattern").error("reflex-pattern", error.message, hint=error.hint)
            return None

    def _examples(self) -> tuple[str, ...]:
        examples = self.table.get("examples", [])
        fits = isinstance(examples, list) and all(isinstance(example, str) for example in examples)
        if not fits or len(examples) > MAX_EXAMPLES:
            message = f"'examples' must be a list of at most {MAX_EXAMPLES} strings"
            self.position.under("examples").error("reflex-value", message)
            return ()
        return tuple(examples)

    def _arguments(self, groups: dict[str, GroupRule] | None) -> dict[str, Any]:
        position, arguments = self.position.under("arguments"), self.table.get("arguments", {})
        if not isinstance(arguments, dict):
            position.error("reflex-value", "'arguments' must be a table")
            return {}
        if arguments and "tool" not in self.table:
            position.error("reflex-value", "'arguments' without a 'tool'")
        filled = {
            key: read_constant(value, position.under(key)) for key, value in arguments.items()
        }
        self._check_argument(filled, groups, position)
        return filled

    def _check_argument(
        self, value: Any, groups: dict[str, GroupRule] | None, position: FilePosition
    ) -> None:
        if isinstance(value, Template):
            for path in value.placeholders:
                self._check_placeholder(path, groups, (), position)
        elif isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                self._check_argument(item, groups, position.under(key))

    def _reply(
        self, key: str, groups: dict[str, GroupRule] | None, arguments: dict[str, Any]
    ) -> Template | None:
        position, text = self.position.under(key), self._text(key)
        if text is None:
            return None
        try:
            template = parse_template(text)
        except TemplateError as error:
            position.error("reflex-template", str(error))
            return None
        also = (*arguments, "result") if "tool" in self.table else tuple(arguments)
        for path in template.placeholders:
            self._check_placeholder(path, groups, also, position)
        return template

    def _check_placeholder(
        self,
        path: Placeholder,
        groups: dict[str, GroupRule] | None,
        also: tuple[str, ...],
        position: FilePosition,
    ) -> None:
        """Report an unknown placeholder or part; skip the check if the pattern is invalid."""
        if groups is None or (path[0] in also and path[0] not in groups):
            return
        written = "{" + ".".join(path) + "}"
        if path[0] not in groups:
            hint = nearest(path[0], (*groups, *also))
            position.error("reflex-template", f"{written} is unknown here", hint=hint)
            return
        parts = CONVERSIONS[groups[path[0]].type].parts
        if len(path) > 2 or (len(path) == 2 and path[1] not in parts):
            hint = nearest(path[-1], parts) or f"write {{{path[0]}}}"
            position.error("reflex-template", f"{written}: no such part", hint=hint)


_GROUP_KEYS = ("type", "default", "required", "default_currency", "prefer")
_RESERVED = "result"


def read_groups(
    table: Any, trigger: CompiledTrigger | None, position: FilePosition
) -> dict[str, GroupRule] | None:
    """Return a rule for every named group of the pattern, or None if the pattern is invalid."""
    if not isinstance(table, dict):
        position.error("reflex-group", "'groups' must be a table")
        return None
    rules = {name: _read_rule(value, position.under(name)) for name, value in table.items()}
    if trigger is None:
        return None
    for name in rules:
        if name not in trigger.groups:
            message = f"the pattern has no group named {name!r}"
            position.under(name).error("reflex-group", message, hint=nearest(name, trigger.groups))
    if _RESERVED in trigger.groups:
        position.error(
            "reflex-group", "a group cannot be named 'result'; that name is the tool's result"
        )
    return {name: rules.get(name, GroupRule()) for name in trigger.groups}


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


_MAX_DEPTH = 8
_MAX_BITS = 64


def read_constant(value: Any, position: FilePosition) -> Any:
    """Return the value in JSON form. Report a problem and return None if it has none."""
    if len(position.path) > len(("reflex", 0, "arguments")) + _MAX_DEPTH:
        position.error("reflex-value", "nested too deeply")
        return None
    match value:
        case str():
            return _read_text(value, position)
        case dict():
            return {key: read_constant(item, position.under(key)) for key, item in value.items()}
        case list():
            return [read_constant(item, position.under(index)) for index, item in enumerate(value)]
        case datetime() | date() | time():
            return value.isoformat()
    if not _fits_json(value):
        position.error("reflex-value", "this number does not fit JSON")
        return None
    return value


def _read_text(text: str, position: FilePosition) -> Any:
    try:
        template = parse_template(text)
    except TemplateError as error:
        position.error("reflex-template", str(error))
        return None
    return template if template.placeholders else "".join(map(str, template.parts))


def _fits_json(value: float) -> bool:
    if isinstance(value, int):
        return value.bit_length() < _MAX_BITS
    return math.isfinite(value)
