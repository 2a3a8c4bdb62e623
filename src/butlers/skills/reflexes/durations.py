"""Lengths of time, in seconds."""

from __future__ import annotations

import re
from decimal import Decimal

from butlers.skills.reflexes.converted import Converted

MAX_SECONDS = 100 * 366 * 86_400

_UNITS = (
    (604_800, "week", "w wk wks week weeks"),
    (86_400, "day", "d day days"),
    (3_600, "hour", "h hr hrs hour hours"),
    (60, "minute", "m min mins minute minutes"),
    (1, "second", "s sec secs second seconds"),
)
_SECONDS = {word: size for size, _, words in _UNITS for word in words.split()}
_COUNTS = {
    "0.25": ("a quarter of an", "quarter of an"),
    "0.5": ("half", "half a", "half an"),
    "1": ("a", "an", "one"),
    "2": ("a couple of", "two"),
    "3": ("three",),
    "4": ("four",),
    "5": ("five",),
    "6": ("six",),
    "7": ("seven",),
    "8": ("eight",),
    "9": ("nine",),
    "10": ("ten",),
    "15": ("fifteen",),
    "20": ("twenty",),
    "30": ("thirty",),
    "40": ("forty",),
    "45": ("forty-five",),
    "90": ("ninety",),
}
_COUNT_OF = {word: count for count, words in _COUNTS.items() for word in words}
_WORDS = "|".join(sorted(map(re.escape, _COUNT_OF), key=len, reverse=True))
_PART = re.compile(
    rf"(?P<count>[0-9]{{1,9}}(?:[.,][0-9]{{1,6}})?|(?:{_WORDS})(?![a-z]))\s*(?P<unit>[a-z]+)\.?"
)
_JOIN = re.compile(r"\s*(?:,|and)?\s*(?P<half>a half$)?")
_BARE_MINUTES = re.compile(r"[0-5][0-9]")


def read_seconds(text: str) -> int | None:
    """The seconds of "1h30", "2 hours and 5 min", "half an hour": each unit once, falling."""
    rest, total, last = " ".join(text.split()).casefold(), Decimal(0), MAX_SECONDS
    while rest:
        part = _PART.match(rest)
        if part is None:
            return _whole(total + 60 * int(rest)) if _minutes_after_hour(rest, last) else None
        size = _SECONDS.get(part["unit"])
        if size is None or size >= last:
            return None
        total, last = total + _count(part["count"]) * size, size
        join = _JOIN.match(rest, part.end())
        rest = rest[join.end() :] if join else ""
        if join and join["half"]:
            total += Decimal(size) / 2
        elif join and not rest and join[0].strip():
            return None
    return _whole(total) if last < MAX_SECONDS else None


def say_seconds(seconds: int) -> str:
    said: list[str] = []
    for size, name, _ in _UNITS[1:]:
        count, seconds = divmod(seconds, size)
        if count:
            said.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(said) or "0 seconds"


def duration(text: str) -> Converted | None:
    seconds = read_seconds(text)
    if seconds is None:
        return None
    return Converted(seconds, say_seconds(seconds), {"text": say_seconds(seconds)})


def _count(text: str) -> Decimal:
    return Decimal(_COUNT_OF.get(text, text.replace(",", ".")))


def _minutes_after_hour(rest: str, last: int) -> bool:
    return last == 3_600 and _BARE_MINUTES.fullmatch(rest) is not None


def _whole(total: Decimal) -> int | None:
    return int(total) if total == int(total) and total <= MAX_SECONDS else None
