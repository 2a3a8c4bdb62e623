from __future__ import annotations

import pytest

from butlers.domain.links import links, links_from

OUTSIDE = "Dear sir, confirm at https://Evil.example/confirm?id=1 or reply."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.example/x.", ("https://a.example/x",)),
        ("(http://a.example)", ("http://a.example",)),
        ("www.a.example and a.example/path", ("www.a.example", "a.example/path")),
        ("ask a.example, or b.example.", ("a.example", "b.example")),
        ("me@a.example wrote report.pdf", ()),
        ("twice https://a.example https://a.example", ("https://a.example",)),
        ("tel 3.14/day, e.g. this. No link", ()),
        ("", ()),
    ],
)
def test_links_are_found_as_chat_programs_find_them(text: str, found: tuple[str, ...]) -> None:
    assert links(text) == found


@pytest.mark.parametrize(
    "carried",
    [
        "https://evil.example/confirm?id=1",
        "https://evil.example/steal?secret=4711",  # what it carries out is not in the outside text
        "https://user@EVIL.example",
        "www.evil.example/x",
        "evil.example/x",
        "evil.example",
    ],
)
def test_a_link_to_a_host_that_came_from_outside_is_one_of_theirs(carried: str) -> None:
    assert links_from(f"look: {carried}", OUTSIDE) == (carried,)


def test_a_link_to_another_host_is_ours() -> None:
    assert links_from("https://bank.example/login", OUTSIDE) == ()
    assert links_from("no link at all", OUTSIDE) == ()
