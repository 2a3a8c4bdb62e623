"""Facts in plain sentences, and texts that are not worth remembering."""

from __future__ import annotations

import time

import pytest

from butlers.modules.memory.learning.extract import extract_facts
from butlers.modules.memory.learning.worth import is_chatter, junk_reason


def found(text: str) -> list[tuple[str | None, str, str]]:
    return [(fact.subject, fact.predicate, fact.content) for fact in extract_facts(text)]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("Alice's birthday is 4 May", ("Alice", "birthday", "4 May")),
        ("My sister Anna's birthday is May 4th, 1990", ("Anna", "birthday", "May 4th, 1990")),
        ("I live in Berlin", (None, "lives_in", "Berlin")),
        ("No, actually I live in Munich now.", (None, "lives_in", "Munich")),
        ("I moved to San Francisco, California!", (None, "lives_in", "San Francisco, California")),
        ("call me Sam", (None, "preferred_name", "Sam")),
        ("My wife is called Anna", (None, "wife", "Anna")),
        ("Bob Miller is my brother", (None, "brother", "Bob Miller")),
        ("I'm allergic to peanuts", (None, "allergic_to", "peanuts")),
        ("I work at Acme Corp", (None, "works_at", "Acme Corp")),
        ("I work as a nurse", (None, "job", "nurse")),
        ("I am vegetarian", (None, "diet", "vegetarian")),
        ("My favorite color is teal", (None, "favorite", "teal")),
        ("Élodie lives in Zürich", ("Élodie", "lives_in", "Zürich")),
        ("Remember that the key is under the pot", (None, "note", "the key is under the pot")),
    ],
)
def test_plain_sentence_is_a_fact(text: str, fact: tuple[str | None, str, str]) -> None:
    assert found(text) == [fact]


@pytest.mark.parametrize(
    "text",
    [
        "Do I live in Berlin?",
        "If I live in Berlin, what tax do I pay",
        "I don't live in Berlin",
        "Bob said: I live in Paris",
        "I wish I lived in Rome",
        "He lives in Paris",
        "call me back later",
        "My wife is tired",
        "weight 80.4 kg",
        "",
        "\x00\x00",
    ],
)
def test_other_sentence_is_no_fact(text: str) -> None:
    assert found(text) == []


def test_several_sentences_and_values() -> None:
    text = "Hi! I live in Rome. Rex is my dog. Bella is my dog. I live in Paris. Thanks!"
    assert found(text) == [
        (None, "lives_in", "Paris"),
        (None, "dog", "Rex"),
        (None, "dog", "Bella"),
    ]


def test_long_text_takes_linear_time() -> None:
    def seconds(text: str) -> float:
        started = time.process_time()
        extract_facts(text)
        return time.process_time() - started

    extract_facts("I live in Berlin")  # compiles the patterns
    for part in ("I live in A", "and and ", "My favorite x is "):
        short, long = seconds(part * 500), seconds(part * 50_000)
        assert long < 0.5 + 20 * short


@pytest.mark.parametrize(
    ("text", "chatter"),
    [
        ("thanks!", True),
        ("good morning", True),
        ("remind me in 10 minutes to stretch", True),
        ("Could you please show my bills", True),
        ("what's the weather tomorrow?", True),
        ("We had dinner with the Smiths yesterday", False),
        ("From now on answer in German", False),
    ],
)
def test_chatter(text: str, chatter: bool) -> None:
    assert is_chatter(text) is chatter


def test_junk() -> None:
    assert junk_reason("You are the health butler") is not None
    assert junk_reason("thank you so much") is not None
    assert junk_reason("Berlin") is None
