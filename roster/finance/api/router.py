"""Finance on the dashboard: this month by category, budgets, and the bills that come next."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from butlers.sdk.dashboard import (
    Bar,
    Bars,
    ButlerCalls,
    Content,
    Figure,
    Figures,
    Panel,
    calls_of,
    lines_of,
)

router = APIRouter()


@router.get("/spending")
async def spending(request: Request, period: str = "this month") -> dict[str, Any]:
    """Return the spending of a period by category."""
    return {"data": await calls_of(request, "finance").call("spending_summary", period=period)}


async def _months(finance: ButlerCalls) -> Content | None:
    answer = await finance.call("spending_summary", period="this month", compare_to="last month")
    if not answer["groups"] and not answer["compared_to"]["groups"]:
        return None
    return Figures(
        [
            Figure("this month", f"{answer['total']} {answer['currency']}"),
            Figure("last month", f"{answer['compared_to']['total']} {answer['currency']}"),
        ]
    )


async def _categories(finance: ButlerCalls) -> Content | None:
    answer = await finance.call("spending_summary", period="this month")
    bars = [
        Bar(name, abs(float(amount)), f"{amount} {answer['currency']}")
        for name, amount in answer["groups"].items()
    ]
    return Bars(bars) if bars else None


PANELS = (
    Panel("Spending", _months, say="spent 12.50 on lunch"),
    Panel("This month by category", _categories, say="spent 12.50 on lunch"),
    Panel(
        "Bills and subscriptions",
        lines_of("bill_list", "bills", within_days=45),
        say="rent due on the 1st, 900 EUR",
    ),
    Panel("Budgets", lines_of("budget_status", "budgets"), say="budget 300 for food"),
)
