"""Corrections and closest examples for messages that no reflex matches."""

from __future__ import annotations

import pytest

from butlers.skills.reflexes import compile_trigger
from butlers.skills.reflexes.suggest import ReflexExample, closest, corrected

EXAMPLES = [
    ReflexExample("health", "log-weight", "weight 80.4 kg"),
    ReflexExample("health", "log-weight", "my weight is 80"),
    ReflexExample("finance", "spend", "spent 12.50 on lunch"),
    ReflexExample("general", "remind", "remind me in 10 minutes to stretch"),
]
KNOWN = compile_trigger(
    r"(?i)weight \d+(?: kg)?|spent [\d.]+ on \w+|remind me in \d+ minutes to .+"
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("wieght 80", "weight 80"),
        ("Weihgt 80 kg", "weight 80 kg"),
        ("remnid me in 10 minuts to stretch", "remind me in 10 minutes to stretch"),
        ("spnet 12.50 on tea", "spent 12.50 on tea"),
        ("spent 12 euro", None),
        ("eight 80", "weight 80"),
        ("hight 80", None),
        ("", None),
        ("wieght 80 " + "x" * 300, None),
    ],
)
def test_misspelled_words_are_corrected_if_the_result_matches(text, meant):
    assert corrected(text, EXAMPLES, KNOWN.matches) == meant


def test_closest_names_each_reflex_once():
    found = closest("spent 12 euro", EXAMPLES)
    assert [one.text for one in found] == ["spent 12.50 on lunch"]
    assert [one.reflex for one in closest("my weight 80 kg", EXAMPLES)] == ["log-weight"]
    assert closest("xyzzy", EXAMPLES) == []
