"""Tool for plain statistics over measurements, so that no model does sums. It never judges a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg

from butlers.sdk import SESSIONS, CallContext, Effect, Period, PeriodText, read_period, tool

from .measurements import Type
from .units import MeasureType, find_type, plain, rounded, type_name

DEFAULT_DECIMALS = 2
# One row per value; for types that add up, one per day, because three glasses of water are one day's water.
_VALUES = """
    SELECT standard_value AS value, standard_second AS second, measured_at AS at, trust
    FROM measurements WHERE type = $1 AND measured_at >= $2 AND measured_at < $3
"""
_DAY_TOTALS = """
    SELECT sum(standard_value) AS value, NULL::numeric AS second, min(measured_at) AS at,
        CASE WHEN bool_and(trust = 'owner') THEN 'owner' ELSE 'outside' END AS trust
    FROM measurements WHERE type = $1 AND measured_at >= $2 AND measured_at < $3
    GROUP BY (measured_at AT TIME ZONE $4)::date
"""


@dataclass(frozen=True, slots=True)
class MeasurementFigures:
    """Statistics of one period, in the standard unit."""

    count: int
    average: Decimal | None
    second: Decimal | None
    low: Decimal | None
    high: Decimal | None
    low_at: datetime | None
    high_at: datetime | None
    first: Decimal | None
    last: Decimal | None
    per_week: Decimal | None  # slope of the straight line that fits best
    all_trusted: bool


@dataclass(frozen=True, slots=True)
class Display:
    """Form of numbers in an answer: the person's own unit and as many decimals as it needs."""

    kind: MeasureType | None
    unit: str | None

    def value(self, standard: Decimal) -> Decimal:
        if self.kind is None or self.unit is None:
            return rounded(standard, DEFAULT_DECIMALS)
        return self.kind.shown(standard, self.unit)

    def difference(self, standard: Decimal) -> Decimal:
        if self.kind is None or self.unit is None:
            return rounded(standard, DEFAULT_DECIMALS)
        return rounded(self.kind.difference(standard, self.unit), max(self.kind.decimals, 1))

    def with_unit(self, value: Decimal) -> str:
        return f"{value} {self.unit}" if self.unit else str(value)


@tool(callers=SESSIONS, effect=Effect.READ)
async def measurement_statistics(
    ctx: CallContext,
    type: Type,  # noqa: A002
    period: PeriodText = "last 30 days",
) -> dict[str, Any]:
    """Compute count, average, lowest, highest, change and trend of a type, against the period before.

    Types such as steps and water are added up per day first.
    """
    name, span = type_name(type), read_period(ctx, period)
    display = await find_display(ctx, name)
    now = await figures_of(ctx, name, span.start, min(span.end, ctx.now + timedelta(days=1)))
    title = name.replace("_", " ")
    if now.count == 0:
        return {"type": name, "period": period, "count": 0, "text": f"No {title} in {period}."}
    if not now.all_trusted:
        ctx.outside.add("measurements of other people's messages")
    before = await figures_of(ctx, name, *_previous(span, now))
    return {
        "type": name,
        "period": period,
        "unit": display.unit,
        **shown_figures(now, display),
        **_comparison(now, before, display),
        "text": f"{title[:1].upper()}{title[1:]}, {period}: {describe(ctx, now, before, display, span)}",
    }


async def find_display(ctx: CallContext, name: str) -> Display:
    """Return the unit of the newest entry, in which the person thinks."""
    unit = await ctx.connection.fetchval(
        "SELECT unit FROM measurements WHERE type = $1 ORDER BY measured_at DESC, id DESC LIMIT 1",
        name,
    )
    return Display(find_type(name), unit)


async def figures_of(
    ctx: CallContext, name: str, start: datetime, end: datetime
) -> MeasurementFigures:
    kind = find_type(name)
    adds_up = kind is not None and kind.adds_up
    more = (str(ctx.zone),) if adds_up else ()
    row = await ctx.connection.fetchrow(
        f"""
        WITH list AS ({_DAY_TOTALS if adds_up else _VALUES})
        SELECT count(*) AS count, avg(value) AS average, avg(second) AS second,
            min(value) AS low, max(value) AS high,
            (array_agg(at ORDER BY value, at))[1] AS low_at,
            (array_agg(at ORDER BY value DESC, at))[1] AS high_at,
            (array_agg(value ORDER BY at))[1] AS first,
            (array_agg(value ORDER BY at DESC))[1] AS last,
            regr_slope(value, extract(epoch FROM at) / 604800)::numeric AS per_week,
            coalesce(bool_and(trust = 'owner'), true) AS all_trusted
        FROM list
        """,
        name,
        start,
        end,
        *more,
    )
    return _figures(row)


def _figures(row: asyncpg.Record) -> MeasurementFigures:
    return MeasurementFigures(
        **{name: row[name] for name in MeasurementFigures.__dataclass_fields__}
    )


def _previous(span: Period, now: MeasurementFigures) -> tuple[datetime, datetime]:
    """Return the period of the same length before; nothing for "all"."""
    days = (span.last_day - span.first_day).days + 1
    if days > 3660:
        return span.start, span.start
    return span.start - timedelta(days=days), span.start


def shown_figures(figures: MeasurementFigures, display: Display) -> dict[str, Any]:
    assert figures.average is not None
    assert figures.low is not None
    assert figures.high is not None
    assert figures.first is not None
    assert figures.last is not None
    shown: dict[str, Any] = {
        "count": figures.count,
        "average": str(display.value(figures.average)),
        "lowest": str(display.value(figures.low)),
        "highest": str(display.value(figures.high)),
        "first": str(display.value(figures.first)),
        "last": str(display.value(figures.last)),
        "change": _signed(display.difference(figures.last - figures.first)),
    }
    if figures.second is not None:
        shown["average_second"] = str(display.value(figures.second))
    if figures.per_week is not None and figures.count >= 3:
        shown["trend_per_week"] = _signed(display.difference(figures.per_week))
    return shown


def _comparison(
    now: MeasurementFigures, before: MeasurementFigures, display: Display
) -> dict[str, Any]:
    if before.average is None or now.average is None:
        return {}
    return {
        "previous_average": str(display.value(before.average)),
        "previous_count": before.count,
        "against_previous": _signed(display.difference(now.average - before.average)),
    }


def describe(
    ctx: CallContext,
    now: MeasurementFigures,
    before: MeasurementFigures,
    display: Display,
    span: Period,
) -> str:
    """Return the figures as one sentence for a chat."""
    shown = shown_figures(now, display)
    pair = f"/{shown['average_second']}" if "average_second" in shown else ""
    entries = "day" if display.kind and display.kind.adds_up else "entry"
    plural = {"day": "days", "entry": "entries"}[entries] if now.count != 1 else entries
    unit = f" {display.unit}" if display.unit else ""
    parts = [f"average {shown['average']}{pair}{unit} ({now.count} {plural})"]
    if now.count > 1:
        parts.append(f"lowest {shown['lowest']} ({_day(ctx, now.low_at, span)})")
        parts.append(f"highest {shown['highest']} ({_day(ctx, now.high_at, span)})")
    if "trend_per_week" in shown:
        parts.append(f"trend {shown['trend_per_week']}{unit} per week")
    sentence = ", ".join(parts)
    change = _comparison(now, before, display).get("against_previous")
    return f"{sentence}; {_against(change, unit)}." if change is not None else f"{sentence}."


def _against(change: str, unit: str) -> str:
    if Decimal(change) == 0:
        return "the same as in the period before"
    more = "more" if Decimal(change) > 0 else "less"
    return f"{change.lstrip('+-')}{unit} {more} than in the period before"


def _day(ctx: CallContext, at: datetime | None, span: Period) -> str:
    assert at is not None
    day: date = at.astimezone(ctx.zone).date()
    return f"{day:%-d %B}" if day.year == ctx.now.astimezone(ctx.zone).year else f"{day:%-d %B %Y}"


def _signed(number: Decimal) -> str:
    short = plain(number)
    return f"+{short}" if short > 0 else str(short)


TOOLS = (measurement_statistics,)
