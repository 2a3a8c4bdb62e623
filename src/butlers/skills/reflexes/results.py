"""A tool's result, as a reply sees it."""

from __future__ import annotations

from typing import Any

_MAX_DEPTH = 8


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
    if isinstance(result, dict) and depth < _MAX_DEPTH:
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
