"""Panels: the parts of a butler's own page, declared as data in ``roster/<butler>/api/router.py``.

A panel asks its butler's tools and returns content; the dashboard renders it, so that every page looks like
one product and no roster folder writes HTML.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from butlers.api.fleet import FleetClient


@dataclass(frozen=True, slots=True)
class ButlerCalls:
    """Calls of one butler's tools as the owner."""

    fleet: FleetClient
    butler: str

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.fleet.call(self.butler, tool, **arguments)


@dataclass(frozen=True, slots=True)
class Figure:
    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    kind: ClassVar[str] = "figures"
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Series:
    label: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over time. Each series has one value for each time."""

    kind: ClassVar[str] = "chart"
    times: Sequence[datetime]
    series: Sequence[Series]
    summary: str  # the chart in a sentence, for readers who do not see it

    @property
    def data(self) -> dict[str, Any]:
        return {
            "x": [time.timestamp() for time in self.times],
            "series": [{"label": one.label, "values": list(one.values)} for one in self.series],
        }


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    text: str  # the value as a person reads it


@dataclass(frozen=True, slots=True)
class Bars:
    kind: ClassVar[str] = "bars"
    bars: Sequence[Bar]

    @property
    def most(self) -> float:
        return max((bar.value for bar in self.bars), default=0.0)


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    note: str = ""
    badge: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    kind: ClassVar[str] = "lines"
    lines: Sequence[Line]


Content = Figures | LineChart | Bars | Lines


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    load: Callable[[ButlerCalls], Awaitable[Content | None]]  # None: there is nothing to show yet
    say: str = field(default="", kw_only=True)  # a message that would give it something to show


def lines_of(
    tool: str, key: str, **arguments: Any
) -> Callable[[ButlerCalls], Awaitable[Content | None]]:
    """Return a loader that shows the text of a tool's answer, if the list under ``key`` has entries."""

    async def load(butler: ButlerCalls) -> Content | None:
        answer = await butler.call(tool, **arguments)
        return Lines([Line(line) for line in answer["text"].splitlines()]) if answer[key] else None

    return load
