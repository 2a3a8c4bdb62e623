"""Slash commands, and answers with the code of an action."""

from __future__ import annotations

import pytest

from butlers.domain.message import Command, Word, parse_command


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/stop", Command(Word.STOP)),
        (" /Stop \n", Command(Word.STOP)),
        ("/pause 2 hours", Command(Word.PAUSE, "2 hours")),
        ("/status@my_bot", Command(Word.STATUS)),
        ("/resume", Command(Word.RESUME)),
        ("yes 3f2a91", Command(Word.YES, "3f2a91")),
        ("Undo 3f2a91", Command(Word.UNDO, "3f2a91")),
        ("undo", None),
        ("undo the last one", None),
        ("/stopping", None),
        ("stop", None),
        ("please /stop", None),
        ("/", None),
        ("", None),
    ],
)
def test_slash_commands_are_recognized(text: str, found: Command | None) -> None:
    assert parse_command(text) == found
