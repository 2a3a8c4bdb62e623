"""Traits of a text that make it an answer: it names a time, a number or a name, and states something.

They are computed when an item is written, and compared with what a question asks for.
"""

from __future__ import annotations

from enum import IntFlag
from itertools import pairwise

from butlers.modules.memory.items import normalized, word_set
from butlers.modules.memory.search.times import NUMBERS, mentions_time

_FIRST_PERSON = word_set("""
    i my me mine we our us im ive id ich mein meine wir je mon ma nous yo mi nosotros io mio noi eu meu
""")
_COUNTS = (frozenset(NUMBERS) - {"a", "an", "few"}) | {"twice", "dozen", "hundred", "thousand"}
_ASKS_TIME = word_set("when wann quand cuando quando")
_TIME_NOUNS = word_set("date year month day time week jahr monat tag")
_ASKS_NAME = word_set("where who whom whose wo wer ou qui donde quien dove chi onde quem")
_NAME_NOUNS = word_set("city country state place town name called titled")
_AMOUNTS = word_set("many much old long often far tall")
_WHICH = word_set("what which welches welcher")


class Trait(IntFlag):
    TIME = 1
    NUMBER = 2
    NAME = 4
    FIRST_PERSON = 8
    QUESTION = 16

    @property
    def specificity(self) -> int:
        """Return how much a text looks like a statement about the world: from -1 to 3."""
        stated = (Trait.NAME in self) + (Trait.TIME in self) + (Trait.FIRST_PERSON in self)
        return stated - (Trait.QUESTION in self)


def traits_of(text: str) -> Trait:
    words = normalized(text).split()
    found = Trait(0)
    if mentions_time(words):
        found |= Trait.TIME
    if any(word in _COUNTS or word.isdigit() for word in words):
        found |= Trait.NUMBER
    if _has_name(text):
        found |= Trait.NAME
    if not _FIRST_PERSON.isdisjoint(words):
        found |= Trait.FIRST_PERSON
    if text.rstrip().endswith(("?", "？")):
        found |= Trait.QUESTION
    return found


def _has_name(text: str) -> bool:
    """Return whether a word inside a sentence begins with a capital letter."""
    words = text.split()
    return any(
        word[:1].isupper() and word[1:2].islower() and (last[-1:].islower() or last[-1:] == ",")
        for last, word in pairwise(words)
    )


def asked_traits(question: str) -> Trait:
    """Return the traits that an answer to the question should have."""
    words = normalized(question).split()
    found = Trait(0)
    pairs = set(pairwise(words))
    dated = any((which, noun) in pairs for which in _WHICH for noun in _TIME_NOUNS)
    if dated or not _ASKS_TIME.isdisjoint(words[:3]):
        found |= Trait.TIME
    if ("how", "long") in pairs:
        found |= Trait.TIME
    if any(("how", amount) in pairs for amount in _AMOUNTS):
        found |= Trait.NUMBER
    if not _ASKS_NAME.isdisjoint(words) or not _NAME_NOUNS.isdisjoint(words):
        found |= Trait.NAME
    return found
