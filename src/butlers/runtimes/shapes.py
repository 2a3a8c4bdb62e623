"""Reading what may be anything: the value if it has the shape that is asked for, else nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

MOST = 10**15  # of anything that is counted; what claims more is no count


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Those members of a list that are mappings."""
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, Mapping))


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))


def count(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST
    return value if fits else None


def money(value: Any) -> Decimal | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        amount = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    return amount if amount.is_finite() and 0 <= amount <= MOST else None
