"""Costs by butler, model and day, as the key broker metered them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.views import Site
from butlers.broker.ledger import Entry, Ledger, Total

router = APIRouter()

DAYS = 30


@router.get("/costs")
async def costs(request: Request) -> Response:
    site = Site.of(request)
    since = site.clock.now() - timedelta(days=DAYS)
    home, zone = site.fleet.home, site.zone
    by_day = totals_by(home, since, lambda entry: f"{entry.at.astimezone(zone):%Y-%m-%d}")
    return site.render(
        request,
        "costs.html",
        days=DAYS,
        total=spent_since(home, since),
        by_butler=totals_by(home, since, lambda entry: entry.butler),
        by_model=totals_by(home, since, lambda entry: entry.model),
        by_day=dict(sorted(by_day.items(), reverse=True)),
        most=max((total.tokens for total in by_day.values()), default=0),
    )


def spent_since(home: Path, since: datetime) -> Total:
    return totals_by(home, since, lambda entry: "all").get("all", Total())


def totals_by(home: Path, since: datetime, key: Callable[[Entry], str]) -> dict[str, Total]:
    """Return the usage since a time, summed by key, the largest first."""
    totals: dict[str, Total] = {}
    for entry in Ledger(home).since(since):
        totals.setdefault(key(entry), Total()).add(entry)
    return dict(sorted(totals.items(), key=lambda item: -item[1].tokens))
