"""Tool for a summary of a period over everything: figures only, no judgment."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from butlers.sdk import SESSIONS, CallContext, Effect, Period, PeriodText, read_period, tool

from .diary import nutrition_statistics, symptom_statistics
from .doses import medication_adherence
from .medications import active_medications, refill_text
from .statistics import describe, figures_of, find_display

MAX_TYPES = 12


@tool(callers=SESSIONS, effect=Effect.READ)
async def health_summary(ctx: CallContext, period: PeriodText = "last 7 days") -> dict[str, Any]:
    """Summarize a period in plain figures: measurements, doses, symptoms, meals, supplies. No diagnosis."""
    span = read_period(ctx, period)
    parts = {
        "measurements": await _measurements(ctx, span),
        "doses": (await medication_adherence(ctx, period))["text"],
        "symptoms": (await symptom_statistics(ctx, period))["text"],
        "meals": (await nutrition_statistics(ctx, period))["text"],
        "refills": [
            refill_text(one)
            for one in await active_medications(ctx.connection)
            if one.needs_refill()
        ],
    }
    return {"period": period, **parts, "text": _text(period, parts)}


async def _measurements(ctx: CallContext, span: Period) -> list[str]:
    rows = await ctx.connection.fetch(
        """
        SELECT type, bool_and(trust = 'owner') AS all_trusted FROM measurements
        WHERE measured_at >= $1 AND measured_at < $2 GROUP BY type ORDER BY count(*) DESC, type LIMIT $3
        """,
        span.start,
        span.end,
        MAX_TYPES,
    )
    lines = []
    for row in rows:
        if not row["all_trusted"]:
            ctx.outside.add("measurements of other people's messages")
        now = await figures_of(ctx, row["type"], span.start, span.end)
        before = await figures_of(ctx, row["type"], _start_before(span), span.start)
        display = await find_display(ctx, row["type"])
        title = row["type"].replace("_", " ")
        lines.append(f"{title}: {describe(ctx, now, before, display, span)}")
    return lines


def _start_before(span: Period) -> datetime:
    length = span.end - span.start
    return span.start - length if length.days < 3660 else span.start


def _text(period: str, parts: dict[str, Any]) -> str:
    lines = [f"Health, {period}:", *parts["measurements"]]
    for name in ("doses", "symptoms", "meals"):
        if not parts[name].startswith("No "):
            lines += [f"{name}: {parts[name]}"]
    lines += [f"refill: {line}" for line in parts["refills"]]
    return "\n".join(lines) if len(lines) > 1 else f"Nothing recorded for {period}."


TOOLS = (health_summary,)
