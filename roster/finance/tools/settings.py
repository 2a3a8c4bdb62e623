"""Configuration of the finance module, and the amounts that are read with it."""

from __future__ import annotations

from butlers.sdk import CallContext, CurrencyCode, ModuleConfig, Money, read_positive_money


class FinanceConfig(ModuleConfig):
    currency: CurrencyCode = "EUR"


def home_currency(ctx: CallContext) -> str:
    return FinanceConfig.of(ctx).currency


def read_amount(ctx: CallContext, text: str) -> Money:
    """Return a positive amount, in the home currency unless the words name another."""
    return read_positive_money(text, home_currency(ctx))
