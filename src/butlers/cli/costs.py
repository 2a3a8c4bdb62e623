"""``butlers costs``: tokens and dollars that the key broker metered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from butlers.broker.audit import BrokerAudit
from butlers.broker.ledger import KEPT_DAYS, Entry, Ledger, Total
from butlers.cli.output import AsJson, print_json, print_line, print_rows, print_table
from butlers.config.fleet import load_fleet_config
from butlers.config.prices import load_prices
from butlers.config.settings import Settings

UNKNOWN = "price unknown"
REFUSED_COLUMNS = ("at", "butler", "session", "status", "method", "path", "reason")


class Grouping(StrEnum):
    BUTLER = "butler"
    MODEL = "model"
    DAY = "day"
    SESSION = "session"


def costs(
    by: Annotated[Grouping, typer.Option(help="What to sum up.")] = Grouping.BUTLER,
    days: Annotated[
        int, typer.Option(min=1, max=KEPT_DAYS, help="Number of days, with today.")
    ] = 30,
    refused: Annotated[
        bool,
        typer.Option("--refused", help="List the requests that the key broker refused instead."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the sessions of this home used: requests, tokens and dollars."""
    settings = Settings.from_environ()
    if refused:
        print_rows(list(BrokerAudit(settings.home).refusals()), REFUSED_COLUMNS, as_json)
        return
    zone = ZoneInfo(load_fleet_config(settings).timezone)
    prices = load_prices(settings)
    today = datetime.now(UTC).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=days - 1)
    rows = _rows(Ledger(settings.home), by, since, zone)
    if as_json:
        facts = {"since": since.isoformat(), "prices_dated": str(prices.dated)}
        print_json({**facts, "by": str(by), "rows": rows})
        return
    columns = ("requests", "input_tokens", "cached_tokens", "output_tokens")
    print_table(
        (str(by), "requests", "input", "cached", "output", "cost"),
        [[row[str(by)], *(f"{row[name]:,}" for name in columns), _cost(row)] for row in rows],
    )
    print_line(f"since {since:%Y-%m-%d}, prices of {prices.dated}", err=True)
    if any(row["unpriced_tokens"] for row in rows):
        print_line("hint: add models without a price to prices.toml", err=True)


def _rows(ledger: Ledger, by: Grouping, since: datetime, zone: ZoneInfo) -> list[dict[str, Any]]:
    key = _key(by, zone)
    totals: dict[str, Total] = {}
    estimated: dict[str, int] = {}
    for entry in ledger.since(since):
        name = key(entry)
        totals.setdefault(name, Total()).add(entry)
        estimated[name] = estimated.get(name, 0) + entry.estimated
    return [
        {
            str(by): name,
            "requests": total.requests,
            "input_tokens": total.input_tokens,
            "cached_tokens": total.cached_tokens,
            "output_tokens": total.output_tokens,
            "usd": str(total.usd),
            "unpriced_tokens": total.unpriced,
            "estimated_requests": estimated[name],
        }
        for name, total in sorted(totals.items())
    ]


def _key(by: Grouping, zone: ZoneInfo) -> Callable[[Entry], str]:
    if by is Grouping.DAY:
        return lambda entry: f"{entry.at.astimezone(zone):%Y-%m-%d}"
    return lambda entry: str(getattr(entry, str(by)))


def _cost(row: dict[str, Any]) -> str:
    """Return the dollars, and flag the tokens whose price is unknown."""
    tokens = row["input_tokens"] + row["output_tokens"]
    if row["unpriced_tokens"] == tokens:
        return UNKNOWN if tokens else "$0.00"
    priced = f"${float(row['usd']):.4f}"
    more = row["unpriced_tokens"]
    return f"{priced} + {more:,} tokens, {UNKNOWN}" if more else priced
