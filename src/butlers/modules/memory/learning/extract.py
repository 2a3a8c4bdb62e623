"""Facts in plain sentences, found without a model: "I live in Berlin", "Alice's birthday is 4 May".

A pattern must match a whole sentence, so that a question, a condition or a report of what somebody else said
is not taken for a fact. RE2 reads any text in linear time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from butlers.modules.memory.items import Permanence, normalized, word_set
from butlers.modules.memory.search.times import MONTHS

MAX_SENTENCE = 300
MAX_SENTENCES = 40
MAX_VALUE = 60
MIN_NOTE = 8
_KIN = (
    "wife|husband|partner|girlfriend|boyfriend|fiance|fiancee|son|daughter|mother|mom|mum|father|dad|brother|"
    "sister|grandmother|grandfather|aunt|uncle|cousin|boss|manager|doctor|dentist|landlord|neighbor|neighbour|"
    "roommate|flatmate|colleague|dog|cat"
)
_NAME = r"(\p{Lu}[^\s,:;]*(?: \p{Lu}[^\s,:;]*)*)"
_MONTH = f"(?i:{'|'.join(MONTHS)})"
_NUMBER = r"\d{1,2}(?:st|nd|rd|th)?"
_DAY = (
    rf"((?:{_NUMBER}(?: of)? {_MONTH}|{_MONTH} {_NUMBER})(?:,? \d{{4}})?|\d{{4}}-\d{{2}}-\d{{2}})"
)
_PLACE = r"(\p{Lu}[^:;!?\"]+)"
_THING = r"([^,.:;!?]+)"
_LEAD_WORDS = (
    "no|actually|sorry|correction|by the way|btw|fyi|also|and|well|ok|okay|hey|hi|hello|please|note|remember|"
    "note that|remember that|please remember that|for the record"
)
_LEAD = f"(?i:(?:{_LEAD_WORDS})[,:!]? )*"
_LIVE = "(?i:(?:now )?(?:live|am living|are living|moved|have moved|just moved) (?:in|to))"
_I_AM = "(?i:I am|I'm|I’m)"
_BORN = f"(?i:birthday is(?: on)?) {_DAY}"
_DIETS = "vegetarian|vegan|pescatarian|lactose intolerant|celiac"


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    subject: str | None  # None: the author of the sentence
    predicate: str
    content: str
    permanence: Permanence
    qualifier: str = ""
    importance: float = 7.0


@dataclass(frozen=True, slots=True)
class _Pattern:
    regexp: str
    predicate: str  # may be "{1}": the word of that group
    permanence: Permanence
    value: int  # group of the value
    subject: int = 0  # group of the subject; 0: the author
    qualifier: int = 0


_PATTERNS = (
    _Pattern(f"(?i:my name is|call me) {_NAME}", "preferred_name", Permanence.STABLE, 1),
    _Pattern(f"(?i:I|we) {_LIVE} {_PLACE}", "lives_in", Permanence.STABLE, 1),
    _Pattern(f"{_I_AM} (?i:living in|moving to) {_PLACE}", "lives_in", Permanence.STABLE, 1),
    _Pattern(f"(?i:my) {_BORN}", "birthday", Permanence.PERMANENT, 1),
    _Pattern(f"(?i:I was born(?: on)?) {_DAY}", "birthday", Permanence.PERMANENT, 1),
    _Pattern(f"{_NAME}(?:'s|’s|') {_BORN}", "birthday", Permanence.PERMANENT, 2, subject=1),
    _Pattern(
        f"(?i:my (?:{_KIN})) {_NAME}(?:'s|’s|') {_BORN}",
        "birthday",
        Permanence.PERMANENT,
        2,
        subject=1,
    ),
    _Pattern(f"(?i:I (?:now )?work (?:at|for)) {_PLACE}", "works_at", Permanence.STABLE, 1),
    _Pattern(f"(?i:I (?:now )?work as(?: an?)?) {_THING}", "job", Permanence.STABLE, 1),
    _Pattern(
        f"{_I_AM} (?i:allergic to) {_THING}", "allergic_to", Permanence.PERMANENT, 1, qualifier=1
    ),
    _Pattern(
        f"{_NAME} (?i:is allergic to) {_THING}",
        "allergic_to",
        Permanence.PERMANENT,
        2,
        subject=1,
        qualifier=2,
    ),
    _Pattern(f"{_I_AM} (?i:(?:a )?({_DIETS}))", "diet", Permanence.STABLE, 1),
    _Pattern(
        f"(?i:my ({_KIN})(?:'s name)? is(?: called| named)?) {_NAME}", "{1}", Permanence.STABLE, 2
    ),
    _Pattern(f"{_NAME} (?i:is my ({_KIN}))", "{2}", Permanence.STABLE, 1),
    _Pattern(
        f"(?i:my favou?rite {_THING} is) {_THING}", "favorite", Permanence.STABLE, 2, qualifier=1
    ),
    _Pattern(
        f"{_NAME} (?i:lives in|moved to) {_PLACE}", "lives_in", Permanence.STABLE, 2, subject=1
    ),
    _Pattern(
        f"{_NAME} (?i:works (?:at|for)) {_PLACE}", "works_at", Permanence.STABLE, 2, subject=1
    ),
)
_NOTE = r"(?i:please )?(?i:remember|note)(?i: that)? (.+)"
_SEVERAL = word_set("""
    son daughter brother sister aunt uncle cousin doctor neighbor neighbour roommate flatmate colleague
    dog cat
""")
_NO_SUBJECT = word_set("""
    he she it they this that there today tomorrow yesterday everyone somebody someone nobody what who the
    a an i
""")


def extract_facts(text: str) -> list[ExtractedFact]:
    """Return the plain facts of a text, in order, each once."""
    found: dict[tuple[str | None, str, str], ExtractedFact] = {}
    for sentence in _sentences(text):
        fact = _fact_in(sentence)
        if fact is not None:
            found[(fact.subject, fact.predicate, fact.qualifier)] = fact
    return list(found.values())


def _sentences(text: str) -> Iterator[str]:
    """Yield the statements of a text. A sentence ends at a line or at punctuation before a space."""
    start, count = 0, 0
    text = unicodedata.normalize("NFC", text[: MAX_SENTENCE * MAX_SENTENCES])
    for index, character in enumerate(f"{text}\n"):
        ends = character == "\n" or (
            character in ".!?;" and (index + 1 >= len(text) or text[index + 1].isspace())
        )
        if not ends:
            continue
        sentence = text[start:index].strip()
        start = index + 1
        if 3 < len(sentence) <= MAX_SENTENCE and character != "?" and count < MAX_SENTENCES:
            count += 1
            yield sentence


def _fact_in(sentence: str) -> ExtractedFact | None:
    for pattern, regexp in _compiled():
        match = regexp.fullmatch(sentence)
        if match is not None:
            return _built(pattern, match)
    note = _note().fullmatch(sentence)
    if note is None:
        return None
    content = note[1].strip()
    if len(content) < MIN_NOTE:
        return None
    return ExtractedFact(None, "note", content, Permanence.STANDARD, normalized(content)[:80])


def _built(pattern: _Pattern, match: Any) -> ExtractedFact | None:
    predicate = pattern.predicate
    if predicate.startswith("{"):
        predicate = match[int(predicate[1])].lower()
    subject = match[pattern.subject] if pattern.subject else None
    value = match[pattern.value].strip(" .,!").removesuffix(" now")
    if not 1 < len(value) <= MAX_VALUE or len(subject or "") > MAX_VALUE:
        return None
    if (subject and subject.lower() in _NO_SUBJECT) or value.lower() in _NO_SUBJECT:
        return None
    qualifier = normalized(match[pattern.qualifier]) if pattern.qualifier else ""
    if predicate in _SEVERAL:
        qualifier = normalized(value)
    return ExtractedFact(subject, predicate, value, pattern.permanence, qualifier)


@cache
def _compiled() -> tuple[tuple[_Pattern, Any], ...]:
    import re2

    return tuple((pattern, re2.compile(_LEAD + pattern.regexp)) for pattern in _PATTERNS)


@cache
def _note() -> Any:
    import re2

    return re2.compile(_NOTE)
