"""A tool's arguments with placeholders, and how a match fills them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from butlers.skills.reflexes.converted import Converted
from butlers.skills.reflexes.speech import say
from butlers.skills.reflexes.templates import Path, Template


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
        return _value(template.whole, groups)
    return template.render(lambda path: _text(_value(path, groups)))


def _value(path: Path, groups: Mapping[str, Converted]) -> Any:
    group = groups.get(path[0])
    if group is None:
        return OMIT
    return group.value if len(path) == 1 else group.parts.get(path[1], OMIT)


def _text(value: Any) -> str:
    return "" if value is OMIT else say(value)
