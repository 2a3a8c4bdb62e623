"""The calls of the whole life, butler by butler."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from butlers.demo.money import invented_money
from butlers.demo.people import invented_people

SEED = 4711
DAYS = 182
SOURCE = "the demo: invented data"
IMPORT_ID = UUID("00000000-0000-4000-8000-00000000de30")
BATCH = 500


@dataclass(frozen=True, slots=True)
class DemoCall:
    butler: str
    tool: str
    arguments: dict[str, Any]


def invented_life(today: date) -> list[DemoCall]:
    """Return the calls in the order in which they are made."""
    chance = Random(SEED)
    days = [today - timedelta(days=back) for back in range(DAYS, -1, -1)]
    return [
        *_finance(chance, days),
        *_relationship(chance, days),
        *_health(chance, days),
        *_general(today),
        *_travel(today),
    ]


def _import(butler: str, argument: str, rows: list[dict[str, Any]]) -> list[DemoCall]:
    marked = {"import_id": str(IMPORT_ID), "source": SOURCE}
    trusted = {} if butler == "health" else {"trusted": True}
    return [
        DemoCall(butler, f"{butler}_import", {**marked, argument: rows[at : at + BATCH], **trusted})
        for at in range(0, len(rows), BATCH)
    ]


def _finance(chance: Random, days: list[date]) -> list[DemoCall]:
    rows, bills, budgets = invented_money(chance, days)
    calls = [
        DemoCall("finance", "account_save", {"name": "Giro", "opening_balance": "2140.55"}),
        DemoCall("finance", "account_save", {"name": "Savings", "kind": "savings"}),
        *_import("finance", "transactions", rows),
        *(DemoCall("finance", "bill_save", bill) for bill in bills),
        *(DemoCall("finance", "budget_save", budget) for budget in budgets),
        DemoCall("finance", "rate_save", {"base": "USD", "quote": "EUR", "rate": "0.92"}),
        # The same payment, entered by hand as well: a mistake to find.
        DemoCall(
            "finance",
            "transaction_add",
            {"amount": "64.90", "description": "Shoes", "day": days[-4].isoformat()},
        ),
    ]
    transfer = {"amount": "200", "from_account": "Giro", "to_account": "Savings"}
    firsts = [day for day in days if day.day == 2]
    calls += [
        DemoCall("finance", "transfer_add", {**transfer, "day": day.isoformat()}) for day in firsts
    ]
    return calls


def _relationship(chance: Random, days: list[date]) -> list[DemoCall]:
    people, calls = invented_people(chance, days)
    return [
        *_import("relationship", "people", people),
        *(DemoCall("relationship", tool, arguments) for tool, arguments in calls),
    ]


def _health(chance: Random, days: list[date]) -> list[DemoCall]:
    rows = [row for number, day in enumerate(days) for row in _measured(chance, number, day)]
    return [
        *_import("health", "measurements", rows),
        DemoCall(
            "health", "medication_set", {"name": "Vitamin D", "dose": "1000 IU", "times": ["08:00"]}
        ),
        DemoCall(
            "health", "symptom_log", {"name": "headache", "severity": 4, "occurred_at": "yesterday"}
        ),
    ]


def _measured(chance: Random, number: int, day: date) -> list[dict[str, Any]]:
    """Return the measurements of a day: a weight that falls slowly, and steps that rise."""
    at = datetime.combine(day, time(7, 30), UTC)
    weight = Decimal("84.2") - Decimal(number) * Decimal("0.022") + _noise(chance, 6)
    steps = 5200 + number * 12 + chance.randint(-1800, 2600)
    sleep = Decimal("7.2") + _noise(chance, 12)
    rows = [
        {"type": "weight", "value": f"{weight:.1f}", "unit": "kg"},
        {"type": "steps", "value": str(steps), "unit": "steps"},
        {"type": "sleep", "value": f"{sleep:.1f}", "unit": "h"},
    ]
    if number % 3 == 0:
        upper, lower = 124 + chance.randint(-8, 9), 79 + chance.randint(-6, 6)
        pressure = {"value": str(upper), "second": str(lower), "unit": "mmHg"}
        rows.append({"type": "blood_pressure", **pressure})
    if number % 9 == 4:
        rows = rows[1:]  # a day without a weight
    return [{"key": f"demo-{row['type']}-{day}", "at": at.isoformat(), **row} for row in rows]


def _noise(chance: Random, tenths: int) -> Decimal:
    return Decimal(chance.randint(-tenths, tenths)) / 10


def _general(today: date) -> list[DemoCall]:
    soon = today + timedelta(days=2)
    lists: list[dict[str, Any]] = [
        {"items": ["milk", "bread", "tomatoes", "coffee"], "list": "shopping"},
        {"items": ["Renew the library card"], "due": soon.isoformat()},
        {"items": ["Call the landlord about the heating"]},
        {"items": ["Water the plants"], "repeat": "every week"},
        {"items": ["The Left Hand of Darkness", "Middlemarch"], "list": "reading"},
    ]
    notes = (
        "Wi-Fi password of the cabin: larch-otter-42 #home",
        "Best bread: bakery at the corner of Elm Street #food",
        "The boiler model is Calor 300, bought in 2021 #home",
    )
    return [
        *(DemoCall("general", "list_add", arguments) for arguments in lists),
        *(DemoCall("general", "note_add", {"text": text}) for text in notes),
    ]


def _travel(today: date) -> list[DemoCall]:
    start, end = today + timedelta(days=24), today + timedelta(days=31)
    trip = {"name": "Lisbon", "starts_on": start.isoformat(), "ends_on": end.isoformat()}
    out = {
        "mode": "flight",
        "origin": "BER",
        "destination": "LIS",
        "departs": f"{start} 09:40",
        "arrives": f"{start} 12:25",
        "number": "TP533",
    }
    stay = {"name": "Casa Azul", "check_in": start.isoformat(), "check_out": end.isoformat()}
    expiry = (today + timedelta(days=75)).isoformat()
    return [
        DemoCall("travel", "trip_set", trip),
        DemoCall("travel", "leg_add", out),
        DemoCall("travel", "stay_add", {**stay, "city": "Lisbon"}),
        DemoCall("travel", "document_set", {"kind": "passport", "expires_on": expiry}),
    ]
