"""Amounts of money in a person's words, for the arguments and answers of tools. Decimal only."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from butlers.domain.errors import InvalidArguments
from butlers.skills.reflexes.quantities import CURRENCIES, minor_digits, money, read_decimal
from butlers.skills.reflexes.values import GroupRule

# Beyond this, an amount would lose digits in the history of records, which is JSON.
LARGEST_AMOUNT = Decimal(10) ** 12

MoneyText = Annotated[str, Field(max_length=40, description='e.g. "12.50" or "12.50 USD"')]
CurrencyCode = Annotated[str, Field(pattern=r"^[A-Z]{3}$")]


@dataclass(frozen=True, slots=True)
class Money:
    amount: Decimal
    currency: str

    def __str__(self) -> str:
        return f"{format_amount(self.amount, self.currency)} {self.currency}"


def read_money(text: str, default_currency: str) -> Money:
    """Return the amount of the words; without a currency in them, in the default one.

    Raises InvalidArguments for words that are no amount, or one with too many decimals.
    """
    found = money(text, GroupRule(type="money", default_currency=default_currency))
    if found is None:
        raise InvalidArguments(
            f"{text!r} is not an amount of money", hint='write "12.50" or "12.50 USD"'
        )
    amount = Decimal(found.value["amount"])
    if abs(amount) >= LARGEST_AMOUNT:
        raise InvalidArguments(f"{text!r} is too large", hint="the largest amount has 12 digits")
    return Money(amount, found.value["currency"])


def read_positive_money(text: str, default_currency: str) -> Money:
    """Return the amount of the words. Raises InvalidArguments unless it is above zero."""
    found = read_money(text, default_currency)
    if found.amount <= 0:
        raise InvalidArguments(
            f"{text!r} is not above zero", hint="the direction is another argument, not the sign"
        )
    return found


def read_currency(text: str) -> str:
    """Return the ISO 4217 code of the words "eur", "€" or "euro"."""
    found = money(f"1 {text.strip()}", GroupRule(type="money"))
    if found is None or found.value["currency"] not in CURRENCIES:
        raise InvalidArguments(
            f"{text!r} is not a currency", hint='write a code such as "EUR" or "USD"'
        )
    return str(found.value["currency"])


def read_ratio(text: str) -> Decimal:
    """Return a positive factor such as an exchange rate."""
    found = read_decimal(text)
    if found is None or found <= 0 or len(found.as_tuple().digits) > 15:
        raise InvalidArguments(f"{text!r} is not a rate", hint='write "1.0842"')
    return found


def round_to_minor(amount: Decimal, currency: str) -> Decimal:
    """Round half to even to the currency's smallest unit."""
    return amount.quantize(Decimal(1).scaleb(-minor_digits(currency)))


def format_amount(amount: Decimal, currency: str) -> str:
    return f"{round_to_minor(amount, currency):f}"
