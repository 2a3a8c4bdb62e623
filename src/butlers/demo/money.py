"""Invented transactions, bills and budgets."""

from __future__ import annotations

from datetime import date, timedelta
from random import Random
from typing import Any

Rows = list[dict[str, Any]]

# description, category, lowest and highest price in cents, chance per day in percent
_EVERYDAY = (
    ("Supermarket", "food", 1250, 7890, 38),
    ("Bakery", "food", 280, 960, 45),
    ("Lunch", "food", 850, 1490, 42),
    ("Coffee", "food", 290, 520, 35),
    ("Restaurant", "food", 2200, 6800, 8),
    ("Tram ticket", "transport", 320, 320, 18),
    ("Taxi", "transport", 1100, 3400, 3),
    ("Cinema", "entertainment", 1100, 2600, 4),
    ("Bookshop", "entertainment", 990, 3200, 4),
    ("Pharmacy", "health", 480, 2900, 4),
    ("Clothes", "shopping", 1990, 11900, 3),
)
_MONTHLY = (
    (1, "Rent", "housing", 89000),
    (3, "Electricity", "utilities", 7450),
    (5, "Internet", "utilities", 3499),
    (12, "Netflix", "entertainment", 1299),
    (15, "Gym", "health", 2990),
    (20, "Liability insurance", "insurance", 640),
)


def invented_money(chance: Random, days: list[date]) -> tuple[Rows, Rows, Rows]:
    """Return transactions for the bulk tool, and arguments for bills and budgets."""
    rows = [row for day in days for row in (*_everyday(chance, day), *_monthly(day))]
    rows += _special(days)
    return rows, _bills(days[-1]), _budgets()


def _everyday(chance: Random, day: date) -> Rows:
    found = []
    for name, category, low, high, percent in _EVERYDAY:
        if chance.randrange(100) < percent:
            # Winter is dearer: a trend to see in the comparison of months.
            cents = chance.randint(low, high) * (112 if day.month in (11, 12, 1) else 100) // 100
            found.append(_row(day, name, category, -cents))
    return found


def _monthly(day: date) -> Rows:
    rows = [_row(day, name, kind, -cents) for on, name, kind, cents in _MONTHLY if day.day == on]
    if day.day == 28:
        rows.append(_row(day, "Salary", "income", 284530))
    return rows


def _special(days: list[date]) -> Rows:
    """Return a shared dinner, a refund, an expense in dollars, and a payment that occurs twice."""
    dinner = _row(days[-20], "Dinner with friends", "food", -9600)
    shares = [{"owed_by": name, "amount": "32.00"} for name in ("Tom Hill", "Bea Sand")]
    shoes = _row(days[-4], "Shoes", "shopping", -6490)
    returned = {**_row(days[-30], "Coat returned", "shopping", 8990), "kind": "refund"}
    dollars = {**_row(days[-45], "Cloud storage", "other", -999), "currency": "USD"}
    return [{**dinner, "shares": shares}, shoes, returned, dollars]


def _row(day: date, name: str, category: str, cents: int) -> dict[str, Any]:
    sign = "-" if cents < 0 else ""
    whole, rest = divmod(abs(cents), 100)
    return {
        "key": f"demo-{day}-{name}",
        "day": day.isoformat(),
        "amount": f"{sign}{whole}.{rest:02}",
        "description": name,
        "category": category,
        "account": "Giro",
    }


def _bills(today: date) -> Rows:
    following = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
    late = (today - timedelta(days=2)).isoformat()
    return [
        {"payee": "Rent", "amount": "890", "due": following.isoformat()},
        {"payee": "Dentist", "amount": "74.50", "due": late, "repeats": "once"},
        {
            "payee": "Netflix",
            "amount": "12.99",
            "kind": "subscription",
            "due": (today + timedelta(days=3)).isoformat(),
        },
        {"payee": "Gym", "amount": "29.90", "kind": "subscription", "due": following.isoformat()},
        {"payee": "Salary", "amount": "2845.30", "kind": "income", "due": following.isoformat()},
    ]


def _budgets() -> Rows:
    return [
        {"category": "food", "amount": "650"},
        {"category": "transport", "amount": "60"},
        {"category": "entertainment", "amount": "80"},
    ]
