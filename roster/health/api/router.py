"""Health on the dashboard: figures of the week, and charts of weight, blood pressure and sleep."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request

from butlers.sdk.dashboard import (
    ButlerCalls,
    Content,
    Figure,
    Figures,
    LineChart,
    Panel,
    Series,
    calls_of,
    lines_of,
)

router = APIRouter()

POINTS = 200


@router.get("/summary")
async def summary(request: Request, period: str = "last 7 days") -> dict[str, Any]:
    """Return the figures of a period: measurements, doses, symptoms, meals, refills."""
    return {"data": await calls_of(request, "health").call("health_summary", period=period)}


async def _latest(health: ButlerCalls) -> Content | None:
    figures = []
    for kind in ("weight", "blood_pressure", "sleep"):
        found = await health.call("measurement_latest", type=kind)
        if found:
            value = f"{found['value']}/{found['second']}" if found.get("second") else found["value"]
            shown = f"{value} {found['unit'] or ''}".strip()
            figures.append(Figure(kind.replace("_", " "), shown, found["when"]))
    return Figures(figures) if figures else None


def _chart(kind: str) -> Any:
    async def load(health: ButlerCalls) -> Content | None:
        answer = await health.call(
            "measurement_history", type=kind, period="last 365 days", limit=POINTS
        )
        found = list(reversed(answer["measurements"]))
        if len(found) < 2:
            return None
        statistics = await health.call("measurement_statistics", type=kind, period="last 30 days")
        series = [Series(f"{kind} ({found[-1]['unit']})", [float(one["value"]) for one in found])]
        if found[-1].get("second"):
            lower = [float(one["second"]) if one.get("second") else None for one in found]
            series = [
                Series("systolic", [float(one["value"]) for one in found]),
                Series("diastolic", lower),
            ]
        times = [datetime.fromisoformat(one["measured_at"]) for one in found]
        return LineChart(times, series, statistics["text"])

    return load


PANELS = (
    Panel("Latest", _latest, say="weight 80.4 kg"),
    Panel("Weight", _chart("weight"), say="weight 80.4 kg"),
    Panel("Blood pressure", _chart("blood_pressure"), say="bp 120/80"),
    Panel("Sleep", _chart("sleep"), say="slept 7.5 hours"),
    Panel("Medications", lines_of("medication_list", "medications"), say="took my ibuprofen"),
)
