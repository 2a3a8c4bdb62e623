"""One reflex: a pattern, the tool call that it stands for, and the reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.skills.reflexes.patterns import CompiledTrigger, Placeholder, Template
from butlers.skills.reflexes.quantities import integer, money, number, unit
from butlers.skills.reflexes.times import date_, datetime_, duration, time_
from butlers.skills.reflexes.values import UNKNOWN, Converted, GroupRule, Moment, say


@dataclass(frozen=True, slots=True)
class Conversion:
    read: Callable[[str, GroupRule, Moment], Converted | None]
    parts: tuple[str, ...] = ()


def text(written: str) -> Converted:
    return Converted(written.strip(), written.strip())


CONVERSIONS: dict[str, Conversion] = {
    "text": Conversion(lambda written, rule, moment: text(written)),
    "number": Conversion(lambda written, rule, moment: number(written)),
    "integer": Conversion(lambda written, rule, moment: integer(written)),
    "unit": Conversion(lambda written, rule, moment: unit(written)),
    "money": Conversion(lambda written, rule, moment: money(written, rule), ("amount", "currency")),
    "date": Conversion(date_, ("text",)),
    "time": Conversion(time_, ("local", "datetime")),
    "datetime": Conversion(datetime_, ("date", "local", "text")),
    "duration": Conversion(lambda written, rule, moment: duration(written), ("text",)),
}


def convert(written: str, rule: GroupRule, moment: Moment) -> Converted | None:
    """The converted text, or None: 31 February and the year 10,000 are simply not dates."""
    try:
        return CONVERSIONS[rule.type].read(written, rule, moment)
    except (ValueError, ArithmeticError):
        return None


class _Omit:
    """The argument is left out."""


OMIT = _Omit()


def fill(argument: Any, groups: Mapping[str, Converted]) -> Any:
    """The argument with its placeholders replaced; OMIT for a whole "{group}" that took no part."""
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
    return "" if value is OMIT else say(value)


_MAX_RESULT_DEPTH = 8


def result_at(result: Any, path: tuple[str, ...]) -> Any:
    """The value at the path, or None. A name applied to a list is applied to each of its items.

    A tool that returns no object has its value wrapped as {"result": value}; both ways are found.
    """
    found = _walk(result, path)
    if isinstance(result, dict) and result.keys() == {"result"} and (found is None or not path):
        return _walk(result["result"], path)
    return found


def is_empty(result: Any, depth: int = 0) -> bool:
    """Nothing there: null, no text, no items, or an object of nothing but such values."""
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


@dataclass(frozen=True, slots=True)
class Reflex:
    skill: str
    name: str
    file: Path
    trigger: CompiledTrigger
    groups: Mapping[str, GroupRule]
    arguments: Mapping[str, Any]
    tool: str | None
    reply: Template
    reply_empty: Template | None = None
    examples: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        return self.trigger.pattern

    def match(self, text: str, moment: Moment) -> ReflexMatch | None:
        captured = self.trigger.match(text)
        groups = None if captured is None else self._converted(captured, moment)
        if groups is None:
            return None
        arguments = fill(dict(self.arguments), groups)
        return ReflexMatch(self, groups, {} if arguments is OMIT else arguments)

    def _converted(
        self, captured: Mapping[str, str | None], moment: Moment
    ) -> dict[str, Converted] | None:
        groups: dict[str, Converted] = {}
        for name, rule in self.groups.items():
            written = captured.get(name)
            # A group that matched nothing, as in (?P<unit>kg|), took no part either.
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
        """What to say once the tool has answered."""
        empty = self.reflex.reply_empty
        template = empty if empty is not None and is_empty(result) else self.reflex.reply
        return template.render(lambda path: self._say(path, result))

    def _say(self, path: Placeholder, result: Any) -> str:
        if path[0] in self.groups:
            group = self.groups[path[0]]
            return say(group.parts.get(path[1], UNKNOWN)) if len(path) > 1 else group.said
        if path[0] == "result":
            return say(result_at(result, path[1:]))
        if path[0] in self.arguments:
            return say(result_at(self.arguments, path))
        return ""
