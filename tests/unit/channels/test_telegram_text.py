"""Formatting and splitting of text for Telegram."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.channels.telegram.text import Entity, FormattedText, from_markdown, split, units

_MARKUP = st.text(alphabet="ab *_~`[]()#\n😀 https://x.y", max_size=200)


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("plain", "plain", []),
        ("a **bold** b", "a bold b", [("bold", 2, 4)]),
        ("*x* and _y_", "x and y", [("italic", 0, 1), ("italic", 6, 1)]),
        ("**a *b* c**", "a b c", [("italic", 2, 1), ("bold", 0, 5)]),
        ("`a*b*`", "a*b*", [("code", 0, 4)]),
        ("```py\nx = 1\n```", "x = 1", [("pre", 0, 5)]),
        ("# Title\ntext", "Title\ntext", [("bold", 0, 5)]),
        ("😀 **x**", "😀 x", [("bold", 3, 1)]),
        ("3 * 4 * 5 and snake_case_name", "3 * 4 * 5 and snake_case_name", []),
        ("**open", "**open", []),
        ("```open", "```open", []),
        ("`open", "`open", []),
        ("[x](javascript:alert)", "[x](javascript:alert)", []),
    ],
)
def test_markdown_becomes_text_and_entities(
    markdown: str, text: str, entities: list[tuple[str, int, int]]
) -> None:
    found = from_markdown(markdown)
    assert found.text == text
    assert [(one.kind, one.offset, one.length) for one in found.entities] == entities


def test_link_keeps_its_address() -> None:
    found = from_markdown("see [the page](https://example.org/a) now")
    assert found.text == "see the page now"
    assert found.entities == (Entity("text_link", 4, 8, "https://example.org/a"),)


def test_long_text_is_split_between_words_and_formatting_continues() -> None:
    words = " ".join(f"word{number}" for number in range(2000))
    pieces = split(from_markdown(f"**{words}**"))
    assert len(pieces) > 2
    assert " ".join(piece.text for piece in pieces) == words
    for piece in pieces:
        assert units(piece.text) <= 4096
        (entity,) = piece.entities
        assert (entity.kind, entity.offset, entity.length) == ("bold", 0, units(piece.text))


def test_paragraphs_stay_together_where_they_can() -> None:
    first, second = "a" * 3000, "b" * 3000
    assert [piece.text for piece in split(FormattedText(f"{first}\n\n{second}"))] == [first, second]


def test_surrogate_pairs_count_twice_and_are_not_cut() -> None:
    pieces = split(FormattedText("😀" * 5000))
    assert [len(piece.text) for piece in pieces] == [2048, 2048, 904]


@given(_MARKUP)
def test_any_text_gives_entities_inside_of_it(markdown: str) -> None:
    for piece in split(from_markdown(markdown), limit=50):
        assert 0 < units(piece.text) <= 50
        for entity in piece.entities:
            assert entity.offset >= 0
            assert entity.length > 0
            assert entity.offset + entity.length <= units(piece.text)
