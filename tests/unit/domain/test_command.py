"""Slash commands: exactly four words."""

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
        ("/stopping", None),
        ("stop", None),
        ("please /stop", None),
        ("/", None),
        ("", None),
    ],
)
def test_slash_commands_are_recognized(text: str, found: Command | None) -> None:
    assert parse_command(text) == found
