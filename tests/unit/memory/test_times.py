"""Time expressions in questions."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from butlers.modules.memory.search.times import find_span
from butlers.modules.memory.search.traits import Trait, asked_traits, traits_of

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("What happened in May 2023?", date(2023, 5, 1), date(2023, 6, 1)),
        ("in May", date(2026, 5, 1), date(2026, 6, 1)),
        ("on 7 May 2023", date(2023, 5, 7), date(2023, 5, 8)),
        ("on the 7th of May, 2023", date(2023, 5, 7), date(2023, 5, 8)),
        ("May 7, 2023", date(2023, 5, 7), date(2023, 5, 8)),
        ("on 2023-05-07", date(2023, 5, 7), date(2023, 5, 8)),
        ("in December", date(2025, 12, 1), date(2026, 1, 1)),
        ("last spring", date(2026, 3, 1), date(2026, 6, 1)),
        ("last autumn", date(2025, 9, 1), date(2025, 12, 1)),
        ("in the summer of 2022", date(2026, 6, 1), date(2026, 9, 1)),
        ("summer 2022", date(2022, 6, 1), date(2022, 9, 1)),
        ("yesterday", date(2026, 11, 17), date(2026, 11, 18)),
        ("last week", date(2026, 11, 9), date(2026, 11, 16)),
        ("this week", date(2026, 11, 16), date(2026, 11, 23)),
        ("last month", date(2026, 10, 1), date(2026, 11, 1)),
        ("last year", date(2025, 1, 1), date(2026, 1, 1)),
        ("last weekend", date(2026, 11, 14), date(2026, 11, 16)),
        ("two weeks ago", date(2026, 11, 1), date(2026, 11, 7)),
        ("on Monday", date(2026, 11, 16), date(2026, 11, 17)),
        ("in 2021", date(2021, 1, 1), date(2022, 1, 1)),
    ],
)
def test_span(text: str, start: date, end: date) -> None:
    span = find_span(text, NOW)
    assert span is not None
    assert (span.start, span.end) == (start, end)


@pytest.mark.parametrize(
    "text", ["May I ask something?", "the march of time", "31 February 2023", "room 2021", ""]
)
def test_no_span(text: str) -> None:
    assert find_span(text, NOW) is None


def test_traits_of_texts_and_questions() -> None:
    assert traits_of("I met Anna yesterday") == Trait.FIRST_PERSON | Trait.NAME | Trait.TIME
    assert traits_of("How are you?") == Trait.QUESTION
    assert traits_of("three apples") == Trait.NUMBER
    assert asked_traits("When did we meet?") == Trait.TIME
    assert asked_traits("How many dogs has she?") == Trait.NUMBER
    assert asked_traits("Where is it?") == Trait.NAME
