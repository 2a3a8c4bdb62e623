"""Read values of any shape from JSON, and write TOML, for the CLIs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_COUNT = 10**15  # a larger number is not a count


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the members of a list that are mappings."""
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, Mapping))


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))


def count(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if fits else None


def money(value: Any) -> Decimal | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        amount = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    return amount if amount.is_finite() and 0 <= amount <= MAX_COUNT else None


def toml_lines(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of a table with dotted keys."""
    for key, value in table.items():
        path = (*above, key)
        if isinstance(value, Mapping):
            yield from toml_lines(value, path)
        else:
            yield f"{'.'.join(map(_quoted, path))} = {_quoted(value)}\n"


def toml_tables(name: str, each: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of an array of tables."""
    for table in each:
        yield f"[[{name}]]\n"
        yield from toml_lines(table)


def _quoted(value: Any) -> str:
    """Write a value as JSON, which is TOML but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
