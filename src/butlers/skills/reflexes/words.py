"""German words of dates, times and durations, rewritten to the English ones that the parsers read."""

from __future__ import annotations

from functools import lru_cache

from butlers.skills.reflexes.patterns import compile_trigger

MAX_WORDS = 20

_WORDS = {
    "heute": "today",
    "gestern": "yesterday",
    "vorgestern": "day before yesterday",
    "übermorgen": "day after tomorrow",
    "jetzt": "now",
    "um": "at",
    "gegen": "at",
    "uhr": "o'clock",
    "mittag": "noon",
    "mittags": "noon",
    "mitternacht": "midnight",
    "früh": "morning",
    "vormittag": "morning",
    "nachmittag": "afternoon",
    "nachmittags": "afternoon",
    "abend": "evening",
    "abends": "evening",
    "nacht": "night",
    "und": "and",
    "im": "in",
    "seit": "since",
    "von": "from",
    "vom": "from",
    "bis": "to",
    "zum": "to",
    "zwischen": "between",
    "immer": "always",
    "insgesamt": "all",
    "alles": "all",
    "tonight": "today night",
}
_FORMS = {
    "next": "nächste nächsten nächster nächstes kommende kommenden kommender kommendes",
    "last": "letzte letzten letzter letztes letztem vergangene vergangenen vergangener vergangenes",
    "this": "diese diesen dieser dieses diesem",
    "a": "ein eine einen einem einer eins",
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "six": "sechs",
    "seven": "sieben",
    "eight": "acht",
    "nine": "neun",
    "ten": "zehn",
    "11": "elf",
    "12": "zwölf",
    "fifteen": "fünfzehn",
    "twenty": "zwanzig",
    "thirty": "dreißig",
    "seconds": "sekunde sekunden sek",
    "minutes": "minute minuten",
    "hours": "stunde stunden std",
    "day": "tag",
    "days": "tage tagen",
    "week": "woche",
    "weeks": "wochen",
    "month": "monat monats",
    "months": "monate monaten",
    "year": "jahr jahres",
    "years": "jahre jahren",
    "quarter": "quartal",
    "weekend": "wochenende",
    "monday": "montag mo",
    "tuesday": "dienstag di",
    "wednesday": "mittwoch mi",
    "thursday": "donnerstag do",
    "friday": "freitag fr",
    "saturday": "samstag sonnabend sa",
    "sunday": "sonntag so",
    "january": "januar jänner",
    "february": "februar",
    "march": "märz",
    "may": "mai",
    "june": "juni",
    "july": "juli",
    "october": "oktober okt",
    "december": "dezember dez",
}
_ENGLISH = {
    **_WORDS,
    **{form: english for english, forms in _FORMS.items() for form in forms.split()},
}
_DROPPED = frozenset(("die", "der", "den", "dem", "das", "des"))
_PHRASES = (
    ("this morning", "today morning"),
    ("this afternoon", "today afternoon"),
    ("this evening", "today evening"),
    ("in the morning", "morning"),
    ("in the afternoon", "afternoon"),
    ("in the evening", "evening"),
    ("at night", "night"),
    ("einer halben stunde", "half an hour"),
    ("eine halbe stunde", "half an hour"),
    ("halben stunde", "half an hour"),
    ("halbe stunde", "half an hour"),
    ("einer viertelstunde", "15 minutes"),
    ("eine viertelstunde", "15 minutes"),
    ("einer dreiviertelstunde", "45 minutes"),
    ("eine dreiviertelstunde", "45 minutes"),
    ("anderthalb stunden", "90 minutes"),
    ("eineinhalb stunden", "90 minutes"),
)
_AGO = compile_trigger(r"(?P<amount>.+ (?:seconds|minutes|hours|days?|weeks?|months?|years?))")
_HOURS = ("eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf")
_HOUR = {
    **{str(hour): hour for hour in range(1, 25)},
    **{word: hour for hour, word in enumerate((*_HOURS, "zwölf"), 1)},
}


@lru_cache(maxsize=1024)
def english(words: str) -> str:
    """Return the folded words with German ones rewritten; English text is returned unchanged."""
    pieces = words.split(" ")
    if len(pieces) > MAX_WORDS:
        return words
    for german, meaning in _PHRASES:
        words = words.replace(german, meaning)
    return " ".join(_rewritten(words.split(" ")))


def _rewritten(pieces: list[str]) -> list[str]:
    found: list[str] = []
    for index, piece in enumerate(pieces):
        before = found[-1] if found else ""
        word = piece.removesuffix(",")
        if word == "am" and not before[-1:].isdigit():
            found += [] if found else ["on"]
        elif word == "morgen":
            found.append(_morning_or_tomorrow(before))
        elif word == "halb" and (hour := _HOUR.get("".join(pieces[index + 1 : index + 2]))):
            pieces[index + 1] = f"{hour - 1}:30"
        elif word not in _DROPPED:
            found.append(_ENGLISH.get(word, piece))
    return _clock_words(_ago(found))


def _morning_or_tomorrow(before: str) -> str:
    """Tell "heute morgen" and "montag morgen" from "morgen"."""
    return "morning" if before in ("today", "yesterday") or before.endswith("day") else "tomorrow"


def _ago(found: list[str]) -> list[str]:
    """Move "vor 3 tagen" behind its amount."""
    if found[:1] == ["vor"] and _AGO.matches(" ".join(found[1:])):
        return [*found[1:], "ago"]
    return found


def _clock_words(found: list[str]) -> list[str]:
    """Join "9 o'clock 30" to "9:30"."""
    if len(found) < 3 or found[-2] != "o'clock" or not found[-1].isdigit():
        return found
    return [*found[:-3], f"{found[-3]}:{int(found[-1]):02}"]
