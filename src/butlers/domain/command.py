"""What the owner may say to the house itself, from any channel, without a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_SAID = re.compile(r"/(?P<word>[a-z]+)(?:@\S+)?(?:\s+(?P<rest>.*))?", re.IGNORECASE | re.DOTALL)


class Word(StrEnum):
    STOP = "stop"  # end every running session
    PAUSE = "pause"  # start none until it is resumed, or for as long as it says
    RESUME = "resume"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class Command:
    word: Word
    rest: str = ""

    @property
    def lane(self) -> str:
        """A stop waits for nothing; the others are carried out in the order in which they were said."""
        return "stop" if self.word is Word.STOP else "others"


def parse_command(text: str) -> Command | None:
    """None for everything that is not exactly one of these words behind a slash."""
    found = _SAID.fullmatch(text.strip())
    if found is None or found["word"].lower() not in list(Word):
        return None
    return Command(Word(found["word"].lower()), (found["rest"] or "").strip())
