"""Converted values of a message, and their form in a reply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from zoneinfo import ZoneInfo

Prefer = Literal["future", "past"]


@dataclass(frozen=True, slots=True)
class Converted:
    value: Any
    display: str
    parts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """Current time and zone, needed to interpret words such as "tomorrow"."""

    now: datetime
    zone: ZoneInfo

    @property
    def local(self) -> datetime:
        return self.now.astimezone(self.zone)

    def at(self, wall_clock: datetime) -> datetime:
        """Return the instant of a local time.

        At a clock change, a skipped time moves forward and of a repeated time the first counts.
        """
        # A time in a gap has the offset from before the gap; the round trip through UTC moves it.
        instant = wall_clock.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        return instant.astimezone(self.zone)


@dataclass(frozen=True, slots=True)
class GroupRule:
    """Settings of one named group."""

    type: str = "text"
    default: str | None = None
    required: bool = False
    default_currency: str | None = None
    prefer: Prefer = "future"


UNKNOWN = "?"

_MAX_DEPTH = 4
_MAX_ITEMS = 50
_SHORT = 24
_MAX_BITS = 200  # about sixty digits


def format_value(value: Any, depth: int = 0) -> str:
    if depth > _MAX_DEPTH:
        return "…"
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case int() | float() | Decimal():
            return format_number(value)
        case list() | tuple():
            return _format_list(
                [format_value(item, depth + 1) for item in value[:_MAX_ITEMS]], len(value)
            )
        case dict():
            return _format_table(value, depth)
        case date() | time():
            return value.isoformat()
    return UNKNOWN


def format_number(value: int | float | Decimal) -> str:
    """Format a number without an exponent or rounding noise: 80.4, 80, 0.3."""
    if isinstance(value, int):
        return str(value) if value.bit_length() <= _MAX_BITS else UNKNOWN
    if not math.isfinite(value):
        return UNKNOWN
    exact = Decimal(f"{value:.12g}") if isinstance(value, float) else value
    if abs(exact.adjusted()) > 60:
        return str(exact)
    text = f"{exact:f}"
    return text.rstrip("0").rstrip(".") if isinstance(value, float) and "." in text else text


def _format_list(items: list[str], total: int) -> str:
    shown = items if total <= _MAX_ITEMS else [*items, f"… {total - _MAX_ITEMS} more"]
    if len(shown) == 1 or all(len(item) <= _SHORT and "\n" not in item for item in shown):
        return ", ".join(shown)
    return "\n".join(f"- {item}" for item in shown)


def _format_table(table: dict[Any, Any], depth: int) -> str:
    if table.keys() == {"amount", "currency"}:
        return f"{format_value(table['amount'], depth + 1)} {format_value(table['currency'], depth + 1)}"
    fields = [
        f"{key}: {format_value(value, depth + 1)}"
        for key, value in table.items()
        if value is not None
    ]
    return ", ".join(fields[:_MAX_ITEMS])
