"""One reflex: a pattern, the tool call that it stands for, and the reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.skills.reflexes.patterns import CompiledTrigger, Placeholder, Template
from butlers.skills.reflexes.quantities import integer, money, number, unit
from butlers.skills.reflexes.times import (
    convert_date,
    convert_datetime,
    convert_duration,
    convert_time,
    convert_when,
)
from butlers.skills.reflexes.values import UNKNOWN, Converted, GroupRule, Moment, format_value


@dataclass(frozen=True, slots=True)
class Conversion:
    read: Callable[[str, GroupRule, Moment], Converted | None]
    parts: tuple[str, ...] = ()


CONVERSIONS: dict[str, Conversion] = {
    "text": Conversion(lambda written, rule, moment: Converted(written.strip(), written.strip())),
    "number": Conversion(lambda written, rule, moment: number(written)),
    "integer": Conversion(lambda written, rule, moment: integer(written)),
    "unit": Conversion(lambda written, rule, moment: unit(written)),
    "money": Conversion(lambda written, rule, moment: money(written, rule), ("amount", "currency")),
    "date": Conversion(convert_date, ("text",)),
    "time": Conversion(convert_time, ("local", "datetime")),
    "datetime": Conversion(convert_datetime, ("date", "local", "text")),
    "when": Conversion(convert_when, ("date", "text")),
    "duration": Conversion(lambda written, rule, moment: convert_duration(written), ("text",)),
}


def convert(written: str, rule: GroupRule, moment: Moment) -> Converted | None:
    """Return the converted text, or None if it has no such value, such as 31 February."""
    try:
        return CONVERSIONS[rule.type].read(written, rule, moment)
    except (ValueError, ArithmeticError):
        return None


class _Omit:
    """Marker: omit the argument."""


OMIT = _Omit()


def fill(argument: Any, groups: Mapping[str, Converted]) -> Any:
    """Replace the placeholders of an argument; return OMIT for a "{group}" that did not match."""
    match argument:
        case Template():
            return _fill_template(argument, groups)
        case dict():
            filled = {key: fill(value, groups) for key, value in argument.items()}
            return {key: value for key, value in filled.items() if value is not OMIT}
        case list():
            items = [fill(value, groups) for value in argument]
            return [item for item in items if item is not OMIT]
    return argument


def _fill_template(template: Template, groups: Mapping[str, Converted]) -> Any:
    if template.whole is not None:
        return _group_value(template.whole, groups)
    return template.render(lambda path: _argument_text(_group_value(path, groups)))


def _group_value(path: Placeholder, groups: Mapping[str, Converted]) -> Any:
    group = groups.get(path[0])
    if group is None:
        return OMIT
    return group.value if len(path) == 1 else group.parts.get(path[1], OMIT)


def _argument_text(value: Any) -> str:
    return "" if value is OMIT else format_value(value)


_MAX_RESULT_DEPTH = 8


def result_at(result: Any, path: tuple[str, ...]) -> Any:
    """Return the value at the path, or None. A name applied to a list is applied to each item.

    MCP wraps a result that is not an object as {"result": value}; both forms are accepted.
    """
    found = _walk(result, path)
    if isinstance(result, dict) and result.keys() == {"result"} and (found is None or not path):
        return _walk(result["result"], path)
    return found


def is_empty(result: Any, depth: int = 0) -> bool:
    """Return True for null, empty text, an empty list, or an object of only such values."""
    if isinstance(result, dict) and depth < _MAX_RESULT_DEPTH:
        return all(is_empty(value, depth + 1) for value in result.values())
    return result is None or (isinstance(result, (str, list, tuple)) and not result)


def _walk(value: Any, path: tuple[str, ...]) -> Any:
    for index, step in enumerate(path):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, (list, tuple)) and step.isascii() and step.isdigit():
            value = value[int(step)] if len(step) < 9 and int(step) < len(value) else None
        elif isinstance(value, (list, tuple)):
            items = [_walk(item, path[index:]) for item in value if isinstance(item, dict)]
            return [item for item in items if item is not None] or None
        else:
            return None
    return value


MAX_LINES = 20


@dataclass(frozen=True, slots=True)
class ResultLines:
    """A list in the tool's result, shown one line for each item."""

    path: Placeholder
    line: Template

    def render(self, result: Any) -> str:
        found = result_at(result, self.path)
        items = found if isinstance(found, list) else []
        lines = [self._line(item) for item in items[:MAX_LINES]]
        if len(items) > MAX_LINES:
            lines.append(f"… and {len(items) - MAX_LINES} more")
        return "\n".join(lines)

    def _line(self, item: Any) -> str:
        def value(path: Placeholder) -> str:
            found = result_at(item, path)
            return "" if found is None else format_value(found)

        return self.line.render(value).replace(" ()", "")  # brackets around a missing value


@dataclass(frozen=True, slots=True)
class Reflex:
    skill: str
    name: str
    file: Path
    triggers: tuple[CompiledTrigger, ...]
    groups: Mapping[str, GroupRule]
    arguments: Mapping[str, Any]
    tool: str | None
    reply: Template
    reply_empty: Template | None = None
    examples: tuple[str, ...] = ()
    not_examples: tuple[str, ...] = ()
    lines: ResultLines | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(trigger.pattern for trigger in self.triggers)

    def match(self, text: str, moment: Moment) -> ReflexMatch | None:
        for trigger in self.triggers:
            captured = trigger.match(text)
            groups = None if captured is None else self._converted(captured, moment)
            if groups is not None:
                arguments = fill(dict(self.arguments), groups)
                return ReflexMatch(self, groups, {} if arguments is OMIT else arguments)
        return None

    def _converted(
        self, captured: Mapping[str, str | None], moment: Moment
    ) -> dict[str, Converted] | None:
        groups: dict[str, Converted] = {}
        for name, rule in self.groups.items():
            written = captured.get(name)
            # A group that matched empty text, as in (?P<unit>kg|), counts as not matched.
            written = written if written and written.strip() else rule.default
            if written is None:
                if rule.required:
                    return None
                continue
            converted = convert(written, rule, moment)
            if converted is None:
                return None
            groups[name] = converted
        return groups


@dataclass(frozen=True, slots=True)
class ReflexMatch:
    reflex: Reflex
    groups: Mapping[str, Converted]
    arguments: dict[str, Any]

    @property
    def skill(self) -> str:
        return self.reflex.skill

    @property
    def name(self) -> str:
        return self.reflex.name

    @property
    def tool(self) -> str | None:
        return self.reflex.tool

    def reply(self, result: Any = None) -> str:
        """Return the reply for the tool's result."""
        empty = self.reflex.reply_empty
        template = empty if empty is not None and is_empty(result) else self.reflex.reply
        return template.render(lambda path: self._display(path, result))

    def _display(self, path: Placeholder, result: Any) -> str:
        if path[0] in self.groups:
            group = self.groups[path[0]]
            return (
                format_value(group.parts.get(path[1], UNKNOWN)) if len(path) > 1 else group.display
            )
        if path[0] == "list" and self.reflex.lines is not None:
            return self.reflex.lines.render(result)
        if path[0] == "result":
            return format_value(result_at(result, path[1:]))
        if path[0] in self.arguments:
            return format_value(result_at(self.arguments, path))
        return ""
