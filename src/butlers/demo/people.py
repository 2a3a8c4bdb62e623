"""Invented people, and what happened with them."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]

# name, birthday (month, day, year or None), employer, groups, notes, days between meetings
_PEOPLE: tuple[tuple[str, tuple[int, int, int | None], str | None, str, str, int], ...] = (
    (
        "Alice Meyer",
        (5, 4, 1990),
        "City Library",
        "book club",
        "Likes green tea; allergic to nuts",
        9,
    ),
    ("Tom Hill", (2, 29, 1988), "Hill & Sons", "tennis", "Moved to the river in spring", 16),
    ("Bea Sand", (11, 23, None), None, "tennis", "Learning Portuguese", 21),
    ("Anna Roth", (8, 17, 1993), "Children's Hospital", "family", "Prefers calls on Sunday", 12),
    ("Karl Roth", (1, 30, 1958), None, "family", "Collects old maps", 30),
    ("Mina Ott", (6, 9, 1985), "Ott Architects", "book club", "Vegetarian", 40),
    ("Jonas Beck", (9, 2, None), "Northwind", "colleagues", "Started a podcast", 55),
    ("Lea Winter", (12, 12, 1991), "Northwind", "colleagues", "Runs marathons", 70),
)
_TOPICS = ("coffee", "a walk", "dinner", "the new film", "work", "travel plans", "the garden")


def invented_people(chance: Random, days: list[date]) -> tuple[list[dict[str, Any]], Calls]:
    """Return people for the bulk tool, and further calls: relations, loans, gifts, a duplicate."""
    people = [_person(chance, days, *one) for one in _PEOPLE]
    # The same person under a short name, with the same address: a mistake to find.
    people.append(
        {
            "key": "demo-person-alice-short",
            "name": "Ali M.",
            "contacts": [{"kind": "email", "value": "alice.meyer@example.org"}],
            "notes": ["Lent me her bike in June"],
        }
    )
    today = days[-1]
    calls: Calls = [
        ("relation_save", {"person": "Anna Roth", "relation": "sister"}),
        ("relation_save", {"person": "Karl Roth", "relation": "father"}),
        ("relation_save", {"person": "Lea Winter", "relation": "boss"}),
        (
            "date_save",
            {"person": "Bea Sand", "day": (today + timedelta(days=6)).strftime("%-d %B")},
        ),
        ("loan_add", {"person": "Tom Hill", "direction": "lent", "amount": "40"}),
        ("loan_add", {"person": "Mina Ott", "direction": "lent", "item": "drill"}),
        ("loan_add", {"person": "Bea Sand", "direction": "borrowed", "amount": "15"}),
        ("gift_save", {"person": "Alice Meyer", "what": "a tea tasting", "occasion": "birthday"}),
        ("stay_in_touch_set", {"person": "Jonas Beck", "every": "month"}),
        ("stay_in_touch_set", {"person": "Anna Roth", "every": "2 weeks"}),
    ]
    return people, calls


def _person(
    chance: Random,
    days: list[date],
    name: str,
    birthday: tuple[int, int, int | None],
    company: str | None,
    group: str,
    note: str,
    every: int,
) -> dict[str, Any]:
    month, day, year = birthday
    address = f"{name.lower().replace(' ', '.')}@example.org"
    when = {"label": "birthday", "month": month, "day": day, **({"year": year} if year else {})}
    return {
        "key": f"demo-person-{name}",
        "name": name,
        **({"company": company} if company else {}),
        "groups": [group],
        "notes": [note],
        "dates": [when],
        "contacts": [
            {"kind": "email", "value": address},
            {"kind": "phone", "value": f"+49 30 555 {chance.randint(1000, 9999)}"},
        ],
        "interactions": _meetings(chance, days, every),
    }


def _meetings(chance: Random, days: list[date], every: int) -> list[dict[str, Any]]:
    found, at = [], chance.randrange(every)
    while at < len(days) - 1:
        when = datetime.combine(days[at], time(chance.randint(9, 19)), UTC)
        kind = "met" if chance.randrange(3) else "call"
        summary = chance.choice(_TOPICS)
        found.append({"at": when.isoformat(), "kind": kind, "summary": summary})
        at += max(1, every + chance.randint(-every // 3, every // 3))
    return found
