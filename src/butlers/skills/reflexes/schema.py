"""A TOML document turned into reflexes, with every problem reported at its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from butlers.domain.errors import InvalidArguments
from butlers.skills.reflexes.constants import read_constant
from butlers.skills.reflexes.conversions import CONVERSIONS
from butlers.skills.reflexes.converted import GroupRule
from butlers.skills.reflexes.examples import check_examples
from butlers.skills.reflexes.group_rules import read_groups
from butlers.skills.reflexes.patterns import CompiledTrigger, compile_trigger
from butlers.skills.reflexes.reflex import Reflex
from butlers.skills.reflexes.report import Report, Spot, nearest
from butlers.skills.reflexes.templates import Path, Template, TemplateError, parse_template

VERSION = 1
MAX_REFLEXES = 100
MAX_EXAMPLES = 20

_KEYS = ("name", "pattern", "tool", "reply", "reply_empty", "examples", "groups", "arguments")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


def read_reflexes(document: dict[str, Any], skill: str, report: Report) -> list[Reflex]:
    root = report.at(())
    if not _check_version(document, root):
        return []
    root.unknown_keys(document, ("version", "reflex"))
    tables = document.get("reflex", [])
    if not isinstance(tables, list) or len(tables) > MAX_REFLEXES:
        message = f"'reflex' must be a list of at most {MAX_REFLEXES} tables"
        root.under("reflex").error("reflex-value", message, hint="start each with [[reflex]]")
        return []
    if not tables:
        report.warning("reflex-empty", "the file has no [[reflex]]")
    found = [_read_entry(table, index, skill, report) for index, table in enumerate(tables)]
    _check_names(tables, report)
    return [reflex for reflex in found if reflex is not None]


def _check_version(document: dict[str, Any], root: Spot) -> bool:
    version = document.get("version")
    if type(version) is int and version == VERSION:
        return True
    message = (
        "'version' is missing" if version is None else "this version of the format is not known"
    )
    root.under("version").error("reflex-version", message, hint=f"write version = {VERSION}")
    return False


def _check_names(tables: list[Any], report: Report) -> None:
    seen: set[str] = set()
    for index, table in enumerate(tables):
        name = table.get("name") if isinstance(table, dict) else None
        if isinstance(name, str) and name in seen:
            spot = report.at(("reflex", index, "name"), name)
            spot.error("reflex-duplicate", f"a second reflex named {name!r}")
        elif isinstance(name, str):
            seen.add(name)


def _read_entry(table: Any, index: int, skill: str, report: Report) -> Reflex | None:
    spot = report.at(("reflex", index), f"#{index + 1}")
    if not isinstance(table, dict):
        spot.error("reflex-value", "a reflex must be a table", hint="start each with [[reflex]]")
        return None
    if isinstance(table.get("name"), str) and table["name"]:
        spot = report.at(spot.path, table["name"][:64])
    return _Entry(table, spot).read(skill)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One [[reflex]] while it is read."""

    table: dict[str, Any]
    spot: Spot

    def read(self, skill: str) -> Reflex | None:
        self.spot.unknown_keys(self.table, _KEYS)
        name = self._word("name", _NAME, "lower-case letters, digits, '-' and '_'")
        trigger = self._trigger()
        tool = self._word("tool", _TOOL, "a tool's name") if "tool" in self.table else None
        groups = read_groups(self.table.get("groups", {}), trigger, self.spot.under("groups"))
        arguments = self._arguments(groups)
        reply = self._reply("reply", groups, arguments)
        empty = (
            self._reply("reply_empty", groups, arguments) if "reply_empty" in self.table else None
        )
        examples = self._examples()
        if name is None or trigger is None or groups is None or reply is None:
            return None
        file = self.spot.report.file
        reflex = Reflex(skill, name, file, trigger, groups, arguments, tool, reply, empty, examples)
        check_examples(reflex, self.spot.under("examples"))
        return reflex

    def _text(self, key: str) -> str | None:
        value = self.table.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if value is None:
            self.spot.error("reflex-missing-key", f"{key!r} is missing")
        else:
            self.spot.under(key).error("reflex-value", f"{key!r} must be a text that is not empty")
        return None

    def _word(self, key: str, shape: re.Pattern[str], allowed: str) -> str | None:
        word = self._text(key)
        if word is not None and not shape.fullmatch(word):
            self.spot.under(key).error("reflex-value", f"{key!r} must be {allowed}")
            return None
        return word

    def _trigger(self) -> CompiledTrigger | None:
        pattern = self._text("pattern")
        if pattern is None:
            return None
        try:
            return compile_trigger(pattern)
        except InvalidArguments as error:
            self.spot.under("pattern").error("reflex-pattern", error.message, hint=error.hint)
            return None

    def _examples(self) -> tuple[str, ...]:
        examples = self.table.get("examples", [])
        fits = isinstance(examples, list) and all(isinstance(example, str) for example in examples)
        if not fits or len(examples) > MAX_EXAMPLES:
            message = f"'examples' must be a list of at most {MAX_EXAMPLES} texts"
            self.spot.under("examples").error("reflex-value", message)
            return ()
        return tuple(examples)

    def _arguments(self, groups: dict[str, GroupRule] | None) -> dict[str, Any]:
        spot, arguments = self.spot.under("arguments"), self.table.get("arguments", {})
        if not isinstance(arguments, dict):
            spot.error("reflex-value", "'arguments' must be a table")
            return {}
        if arguments and "tool" not in self.table:
            spot.error("reflex-value", "'arguments' without a 'tool'")
        filled = {key: read_constant(value, spot.under(key)) for key, value in arguments.items()}
        self._check_argument(filled, groups, spot)
        return filled

    def _check_argument(self, value: Any, groups: dict[str, GroupRule] | None, spot: Spot) -> None:
        if isinstance(value, Template):
            for path in value.placeholders:
                self._check_placeholder(path, groups, (), spot)
        elif isinstance(value, (dict, list)):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                self._check_argument(item, groups, spot.under(key))

    def _reply(
        self, key: str, groups: dict[str, GroupRule] | None, arguments: dict[str, Any]
    ) -> Template | None:
        spot, text = self.spot.under(key), self._text(key)
        if text is None:
            return None
        try:
            template = parse_template(text)
        except TemplateError as error:
            spot.error("reflex-template", str(error))
            return None
        also = (*arguments, "result") if "tool" in self.table else tuple(arguments)
        for path in template.placeholders:
            self._check_placeholder(path, groups, also, spot)
        return template

    def _check_placeholder(
        self, path: Path, groups: dict[str, GroupRule] | None, also: tuple[str, ...], spot: Spot
    ) -> None:
        """With a broken pattern no group is known, and blaming placeholders would help nobody."""
        if groups is None or (path[0] in also and path[0] not in groups):
            return
        written = "{" + ".".join(path) + "}"
        if path[0] not in groups:
            hint = nearest(path[0], (*groups, *also))
            spot.error("reflex-template", f"{written} is not known here", hint=hint)
            return
        parts = CONVERSIONS[groups[path[0]].type].parts
        if len(path) > 2 or (len(path) == 2 and path[1] not in parts):
            hint = nearest(path[-1], parts) or f"write {{{path[0]}}}"
            spot.error("reflex-template", f"{written}: no such part", hint=hint)
