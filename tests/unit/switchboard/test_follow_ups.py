"""Follow-ups complete a short message from the one before it."""

from __future__ import annotations

from datetime import date

import pytest

from butlers.switchboard.follow_ups import completed

TODAY = date(2026, 5, 6)
SPENT = "what did I spend this week"


@pytest.mark.parametrize(
    ("text", "before", "meant"),
    [
        ("and last month?", SPENT, ["what did I spend last month"]),
        ("and in March?", f"{SPENT}?", ["what did I spend in March"]),
        ("what about last 30 days", SPENT, ["what did I spend last 30 days"]),
        ("and February", "how much did I spend on food in March", ["how much did I spend on food February"]),
        ("und letzten Monat?", "Ausgaben diese Woche?", ["Ausgaben letzten Monat"]),
        ("no, 81", "weight 80.4 kg", ["no, weight 81 kg", "nein, weight 81 kg"]),
        ("make it 81.5", "weight 80 kg", ["no, weight 81.5 kg", "nein, weight 81.5 kg"]),
        ("no, 82", "no, weight 81 kg", ["no, weight 82 kg", "nein, weight 82 kg"]),
        ("nein, 81,2", "Gewicht 80,2 kg", ["no, Gewicht 81,2 kg", "nein, Gewicht 81,2 kg"]),
    ],
)  # fmt: skip
def test_follow_up_is_completed(text: str, before: str, meant: list[str]) -> None:
    assert list(completed(text, before, TODAY)) == meant


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("and milk", "add bread to shopping"),
        ("and Alice?", SPENT),
        ("and all?", SPENT),
        ("and last month?", "weight 80.4 kg"),
        ("and May?", "how much did I spend in March against February"),
        ("no, 81", "bp 120/80"),
        ("no, 81", "lunch 12.50 on 3 May"),
        ("no, thanks", "weight 80.4 kg"),
        ("81", "weight 80.4 kg"),
    ],
)
def test_other_messages_are_left_alone(text: str, before: str) -> None:
    assert list(completed(text, before, TODAY)) == []
