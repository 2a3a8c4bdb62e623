"""Words that ask to undo."""

import pytest

from butlers.switchboard.undo import asks_to_undo


@pytest.mark.parametrize(
    "text",
    [
        *(
            "undo",
            "Undo!",
            "undo that",
            "undo the last one",
            "please undo",
            "revert the last change",
        ),
        *(
            "take that back",
            "rückgängig",
            "Rückgängig machen",
            "mach das rückgängig",
            "nimm das zurück",
        ),
    ],
)
def test_undo_words(text):
    assert asks_to_undo(text)


@pytest.mark.parametrize(
    "text",
    ["undo the zip", "how do I undo?", "undoing", "note: undo that", "rückgängig ist ein Wort"],
)
def test_other_messages_are_not_undo(text):
    assert not asks_to_undo(text)
