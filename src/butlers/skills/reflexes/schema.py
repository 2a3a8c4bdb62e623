"""Turn a TOML document into reflexes and report every problem at its place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from butlers.domain.errors import InvalidArguments
from butlers.skills.reflexes.examples import check_examples
from butlers.skills.reflexes.group_rules import read_groups
from butlers.skills.reflexes.patterns import (
    CompiledTrigger,
    Placeholder,
    Template,
    TemplateError,
    compile_trigger,
    parse_template,
)
from butlers.skills.reflexes.positions import FilePosition, nearest
from butlers.skills.reflexes.reflex import CONVERSIONS, Reflex, ResultLines
from butlers.skills.reflexes.values import GroupRule

VERSION = 1
MAX_REFLEXES = 100
MAX_EXAMPLES = 40
MAX_PATTERNS = 20

_KEYS = (
    *("name", "pattern", "patterns", "tool", "reply", "reply_empty", "list", "line"),
    *("examples", "not_examples", "groups", "arguments"),
)
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
        triggers = self._triggers()
        tool = self._word("tool", _TOOL, "a tool's name") if "tool" in self.table else None
        groups = read_groups(self.table.get("groups", {}), triggers, self.position.under("groups"))
        arguments = self._arguments(groups)
        reply = self._reply("reply", groups, arguments)
        empty = (
            self._reply("reply_empty", groups, arguments) if "reply_empty" in self.table else None
        )
        lines = self._lines()
        if name is None or groups is None or reply is None:
            return None
        reflex = Reflex(
            skill,
            name,
            self.position.findings.file,
            triggers,
            groups,
            arguments,
            tool,
            reply,
            empty,
            self._texts("examples", MAX_EXAMPLES),
            self._texts("not_examples", MAX_EXAMPLES),
            lines,
        )
        check_examples(reflex, self.position)
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

    def _triggers(self) -> tuple[CompiledTrigger, ...]:
        if "patterns" in self.table and "pattern" in self.table:
            self.position.under("patterns").error(
                "reflex-value", "a reflex has 'pattern' or 'patterns', not both"
            )
        written = self._texts("patterns", MAX_PATTERNS)
        if "patterns" not in self.table:
            pattern = self._text("pattern")
            written = () if pattern is None else (pattern,)
        key = "patterns" if "patterns" in self.table else "pattern"
        found = [self._trigger(pattern, self.position.under(key)) for pattern in written]
        return tuple(trigger for trigger in found if trigger is not None)

    def _trigger(self, pattern: str, position: FilePosition) -> CompiledTrigger | None:
        try:
            return compile_trigger(pattern)
        except InvalidArguments as error:
            position.error("reflex-pattern", error.message, hint=error.hint)
            return None

    def _texts(self, key: str, most: int) -> tuple[str, ...]:
        texts = self.table.get(key, [])
        fits = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        if not fits or len(texts) > most:
            message = f"{key!r} must be a list of at most {most} strings"
            self.position.under(key).error("reflex-value", message)
            return ()
        return tuple(texts)

    def _lines(self) -> ResultLines | None:
        """Read the list of the result that ``{list}`` shows, and the template of its lines."""
        if not {"list", "line"} & self.table.keys():
            return None
        path, line = self._text("list"), self._template("line")
        if path is None or line is None:
            return None
        return ResultLines(tuple(path.split(".")), line)

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
        template = self._template(key)
        if template is None:
            return None
        also = (*arguments, "result") if "tool" in self.table else tuple(arguments)
        also = (*also, "list") if "list" in self.table else also
        for path in template.placeholders:
            self._check_placeholder(path, groups, also, self.position.under(key))
        return template

    def _template(self, key: str) -> Template | None:
        text = self._text(key)
        try:
            return None if text is None else parse_template(text)
        except TemplateError as error:
            self.position.under(key).error("reflex-template", str(error))
            return None

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
