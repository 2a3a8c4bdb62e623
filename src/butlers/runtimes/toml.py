"""Writing TOML for a CLI to read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def lines(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[str]:
    """As dotted keys, so that no table has to be opened and closed."""
    for key, value in table.items():
        path = (*above, key)
        if isinstance(value, Mapping):
            yield from lines(value, path)
        else:
            yield f"{'.'.join(map(_quoted, path))} = {_quoted(value)}\n"


def tables(name: str, each: list[dict[str, Any]]) -> Iterator[str]:
    """A list of tables, in its order."""
    for table in each:
        yield f"[[{name}]]\n"
        yield from lines(table)


def _quoted(value: Any) -> str:
    """TOML's strings, numbers, booleans and lists are JSON's, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
