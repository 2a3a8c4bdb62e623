"""Addresses that look like a known one: other case, width or script, or invisible characters in them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from butlers.domain.message import OWNER
from butlers.domain.terminal import INVISIBLE

# Cyrillic and Greek letters that most fonts draw like a Latin one, after case folding.
_LIKE_LATIN = str.maketrans("аеорсухіјѕһԁԛԝӏвкмнтοανικρυχ", "aeopcyxijshdqwlbkmhtoavikpyx")
_ALPHABETS = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
_WORD = re.compile(r"\w+")


class Lookalikes:
    """Known names and addresses, found by how they look."""

    def __init__(self, contacts: Iterable[Mapping[str, Any]]) -> None:
        self._known: dict[str, str] = {}
        self._owner_names: dict[str, str] = {}
        for contact in contacts:
            name, identity = contact["name"], contact["identity"]
            label = identity if name == identity else f"{name} ({identity})"
            for text in (identity, name):
                self._known.setdefault(appearance(text), label)
            if OWNER in contact["roles"]:
                self._owner_names.setdefault(appearance(name), label)

    def describe(self, sender: str) -> str | None:
        """Name the contact that an unknown sender looks like, or the alphabets that its words mix."""
        seen = appearance(sender)
        local_part = seen.partition("@")[0]
        if label := self._known.get(seen) or self._owner_names.get(local_part):
            return f"looks like {label}"
        if mixed := mixed_alphabets(sender):
            return f"mixes {' and '.join(mixed)} letters"
        return None


def appearance(text: str) -> str:
    """Return one form of all texts that look alike: NFKC, folded case, no invisible characters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    visible = "".join(
        letter
        for letter in folded
        if unicodedata.category(letter) not in ("Cc", "Cf") and letter not in INVISIBLE
    )
    return unicodedata.normalize("NFKC", visible.strip()).translate(_LIKE_LATIN)


def mixed_alphabets(text: str) -> list[str]:
    """Return the alphabets of the first word that has letters of more than one, else nothing."""
    for word in _WORD.findall(text):
        names = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
        if len(found := names & _ALPHABETS) > 1:
            return sorted(one.capitalize() for one in found)
    return []
