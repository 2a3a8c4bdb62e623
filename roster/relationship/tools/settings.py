"""Configuration of the relationship module, and types that several tools share."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import Field

from butlers.sdk import CallContext, CurrencyCode, ModuleConfig, Money, read_positive_money

PersonText = Annotated[
    str, Field(min_length=1, max_length=100, description='name, alias or "my sister"')
]
Short = Annotated[str, Field(min_length=1, max_length=200)]
LongText = Annotated[str, Field(min_length=1, max_length=2000)]


class RelationshipConfig(ModuleConfig):
    currency: CurrencyCode = "EUR"


def read_amount(ctx: CallContext, text: str) -> Money:
    return read_positive_money(text, RelationshipConfig.of(ctx).currency)


def today_of(ctx: CallContext) -> date:
    return ctx.now.astimezone(ctx.zone).date()


def day_words(day: date, today: date) -> str:
    """Return "today", "yesterday", "tomorrow" or the date."""
    words = {0: "today", -1: "yesterday", 1: "tomorrow"}
    year = "" if day.year == today.year else f" {day.year}"
    return words.get((day - today).days, f"{day:%-d %B}{year}")


def ago_words(day: date, today: date) -> str:
    """Return how long ago the day was: "today", "3 days ago", "2 months ago"."""
    days = (today - day).days
    if days <= 1:
        return "today" if days == 0 else "yesterday" if days == 1 else f"in {-days} days"
    for size, name in ((365, "year"), (30, "month"), (7, "week")):
        if days >= 2 * size:
            return f"{days // size} {name}s ago"
    return f"{days} days ago"
