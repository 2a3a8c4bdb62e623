"""Suggestions for a message that no reflex matches: its correction, and the closest examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

MAX_TEXT = 200  # characters; longer messages are no attempts at a reflex
MAX_TRIES = 60
CLOSE_ENOUGH = 55.0  # of 100
_SHORT_WORD, _LONG_WORD = 4, 6


@dataclass(frozen=True, slots=True)
class ReflexExample:
    butler: str
    reflex: str
    text: str


def corrected(
    text: str, examples: Iterable[ReflexExample], matches: Callable[[str], bool]
) -> str | None:
    """Return the message with one or two misspelled words corrected so that it matches, or None.

    Words are corrected to words of the examples.
    """
    if len(text) > MAX_TEXT:
        return None
    words = text.split()
    vocabulary = sorted({word for one in examples for word in _words(one.text)})
    options = {index: _nearest(word, vocabulary) for index, word in enumerate(words)}
    for candidate in islice(_candidates(words, options), MAX_TRIES):
        if matches(candidate):
            return candidate
    return None


def closest(text: str, examples: Sequence[ReflexExample], limit: int = 3) -> list[ReflexExample]:
    """Return the examples most similar to the text, at most one for each reflex, best first."""
    from rapidfuzz import fuzz

    wanted = _plain(text[:MAX_TEXT])
    best: dict[tuple[str, str], tuple[float, int, ReflexExample]] = {}
    for order, one in enumerate(examples):
        plain = _plain(one.text)
        score = (fuzz.token_sort_ratio(wanted, plain) + fuzz.token_set_ratio(wanted, plain)) / 2
        key = (one.butler, one.reflex)
        if score >= CLOSE_ENOUGH and (key not in best or score > best[key][0]):
            best[key] = (score, order, one)
    ranked = sorted(best.values(), key=lambda found: (-found[0], found[1]))
    return [one for _, _, one in ranked[:limit]]


def _words(text: str) -> Iterator[str]:
    for word in text.casefold().split():
        plain = word.strip(".,:;!?")
        if len(plain) >= _SHORT_WORD and plain.isalpha():
            yield plain


def _plain(text: str) -> str:
    """Fold case, and make all numbers alike."""
    return "".join("0" if char.isdigit() else char for char in text.casefold())


def _nearest(word: str, vocabulary: Sequence[str]) -> list[str]:
    """Return the words of the vocabulary at most one or two typing errors away, nearest first."""
    from rapidfuzz.distance import OSA

    plain = word.casefold().strip(".,:;!?")
    if len(plain) < _SHORT_WORD or not plain.isalpha() or plain in vocabulary:
        return []
    errors = 1 if len(plain) < _LONG_WORD else 2
    found = ((OSA.distance(plain, known, score_cutoff=errors), known) for known in vocabulary)
    return [known for distance, known in sorted(found) if distance <= errors][:4]


def _candidates(words: Sequence[str], options: dict[int, list[str]]) -> Iterator[str]:
    """Yield the text with one word replaced, then with two."""
    single = [(index, known) for index, found in options.items() for known in found]
    for index, known in single:
        yield _replaced(words, {index: known})
    for first, known in single:
        for second, other in single:
            if first < second:
                yield _replaced(words, {first: known, second: other})


def _replaced(words: Sequence[str], changes: dict[int, str]) -> str:
    return " ".join(changes.get(index, word) for index, word in enumerate(words))
