"""Tools that answer questions about money, so that no model does sums."""

from __future__ import annotations

from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Annotated, Any, Literal

from pydantic import Field

from butlers.sdk import (
    SESSIONS,
    CallContext,
    Effect,
    Money,
    Period,
    PeriodText,
    format_amount,
    read_period,
    tool,
)

from .spending import Spending, spending_of

GroupBy = Literal["category", "merchant", "month", "day"]
SHOWN_GROUPS = 8


@tool(callers=SESSIONS, effect=Effect.READ, shared=True)
async def spending_summary(
    ctx: CallContext,
    period: PeriodText = "this month",
    of: Annotated[str, Field(max_length=60)] | None = None,
    compare_to: PeriodText | None = None,
    group_by: GroupBy = "category",
    direction: Literal["out", "in"] = "out",
) -> dict[str, Any]:
    """Add up spending (or income: "in") of a period, and compare it with another period.

    of: a category ("food") or a word ("lunch", "netflix"). Own shares only; refunds are subtracted.
    """
    incoming = direction == "in"
    days = read_period(ctx, period)
    found = await spending_of(ctx, days, of=of, group_by=group_by, incoming=incoming)
    answer = {"period": _shown_period(days), **_shown(found)}
    text = _sentence(found, days, of, incoming=incoming)
    if compare_to:
        other_days = read_period(ctx, compare_to)
        other = await spending_of(ctx, other_days, of=of, group_by=group_by, incoming=incoming)
        answer["compared_to"] = {"period": _shown_period(other_days), **_shown(other)}
        answer["difference"] = format_amount(found.total - other.total, found.currency)
        text += _compared(found, other, other_days)
    elif of is None:
        text += _top(found)
    return {**answer, "text": text + _without_rate(found)}


@tool(callers=SESSIONS, effect=Effect.READ)
async def month_report(ctx: CallContext, month: PeriodText = "last month") -> dict[str, Any]:
    """Return a month-end report: income, spending by category, what is left, the month before."""
    days = read_period(ctx, month)
    before = read_period(ctx, f"{_month_before(days.first_day):%Y-%m}")
    spent, earned = await spending_of(ctx, days), await spending_of(ctx, days, incoming=True)
    earlier = await spending_of(ctx, before)
    left = Money(earned.total - spent.total, spent.currency)
    lines = [
        f"{_period_words(days)}: {earned.money} in, {spent.money} out, {left} left.",
        *(f"{name}: {Money(amount, spent.currency)}" for name, amount in _largest(spent)),
        f"Spending{_compared(spent, earlier, before)}",
    ]
    return {
        "period": _shown_period(days),
        "income": _shown(earned),
        "spending": _shown(spent),
        "left": format_amount(left.amount, left.currency),
        "month_before": _shown(earlier),
        "text": "\n".join(lines) + _without_rate(spent),
    }


def _month_before(first: date) -> date:
    return date(first.year - (first.month == 1), (first.month - 2) % 12 + 1, 1)


def _shown(found: Spending) -> dict[str, Any]:
    groups = {name: format_amount(sum_, found.currency) for name, sum_ in found.groups.items()}
    missing = {code: format_amount(sum_, code) for code, sum_ in found.unconverted.items()}
    return {
        "total": format_amount(found.total, found.currency),
        "currency": found.currency,
        "count": found.count,
        "groups": dict(list(groups.items())[:50]),
        **({"without_rate": missing} if missing else {}),
    }


def _shown_period(days: Period) -> dict[str, str]:
    return {
        "text": _period_words(days),
        "first_day": days.first_day.isoformat(),
        "last_day": days.last_day.isoformat(),
    }


def _sentence(found: Spending, days: Period, of: str | None, *, incoming: bool) -> str:
    what = f" on {of}" if of and not incoming else f" from {of}" if of else ""
    verb = "Received" if incoming else "Spent"
    return f"{verb}{what}, {_period_words(days)}: {found.money}."


def _compared(found: Spending, other: Spending, days: Period) -> str:
    difference = found.total - other.total
    than = f"{_period_words(days)} ({other.money})"
    if difference == 0:
        return f" The same as {than}."
    word = "more" if difference > 0 else "less"
    share = ""
    if other.total > 0:
        percent = abs(difference) * 100 / other.total
        share = f" ({percent.quantize(Decimal('0.1'), ROUND_HALF_EVEN).normalize():f} %)"
    return f" {Money(abs(difference), found.currency)}{share} {word} than {than}."


def _top(found: Spending) -> str:
    if len(found.groups) < 2:
        return ""
    return "\n" + "\n".join(
        f"{name}: {Money(sum_, found.currency)}" for name, sum_ in _largest(found)
    )


def _largest(found: Spending) -> list[tuple[str, Decimal]]:
    items = list(found.groups.items())
    rest = sum((sum_ for _, sum_ in items[SHOWN_GROUPS:]), Decimal(0))
    return items[:SHOWN_GROUPS] + ([("others", rest)] if rest else [])


def _without_rate(found: Spending) -> str:
    if not found.unconverted:
        return ""
    sums = ", ".join(str(Money(sum_, code)) for code, sum_ in found.unconverted.items())
    return f"\nNot included, because no exchange rate is known: {sums}."


def _period_words(days: Period) -> str:
    """Return the person's words, or the month that they mean."""
    words = " ".join(days.text.split())
    first, last = days.first_day, days.last_day
    whole = first.day == 1 and (first.year, first.month) == (last.year, last.month)
    if whole and words[:1].isdigit():
        return f"{first:%B %Y}"
    return words.title() if words.isascii() and words.split()[0].casefold() in _MONTHS else words


_MONTHS = {date(2000, month, 1).strftime("%B").casefold() for month in range(1, 13)}

TOOLS = (spending_summary, month_report)
