from __future__ import annotations

import pytest

from butlers.domain.links import MOST_SITES, links, links_beyond, links_from

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
        ("9https://me@a.example/x", ("9https://me@a.example/x",)),
        ("bücher.рф and xn--bcher-kva.xn--p1ai", ("bücher.рф", "xn--bcher-kva.xn--p1ai")),
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
        "https://4711.evil.example/",  # nor is it in front of the host
        "4.7.1.1.evil.example/x",
        "https://evil.example./?d=4711",
        "https://bank.example@evil.example/",
        "https://me@bank.example@evil.example/",
        "https://evil.example?@bank.example/",
        "https:///evil.example/",
        "https://ev%69l.example/",
        "https://ev\u00adil.example/",
        "https://ｅvil。example/",
    ],
)
def test_link_to_a_host_in_the_outside_text_is_found(carried: str) -> None:
    assert links_from(f"look: {carried}", OUTSIDE) == (carried,)


def test_link_to_another_host_is_not_from_outside() -> None:
    assert links_from("https://bank.example/login", OUTSIDE) == ()
    assert links_from("no link at all", OUTSIDE) == ()


@pytest.mark.parametrize("named", ["bücher.example", "xn--bcher-kva.example", "BÜCHER.EXAMPLE"])
@pytest.mark.parametrize(
    "carried", ["https://bücher.example/4711", "https://xn--bcher-kva.example/"]
)
def test_unicode_and_punycode_hosts_are_equal(named: str, carried: str) -> None:
    assert links_from(carried, f"Go to {named}!") == (carried,)


def test_invalid_punycode_is_compared_literally() -> None:
    assert links_from("https://xn--99999999.example/", "xn--99999999.example") == (
        "https://xn--99999999.example/",
    )


def test_numeric_address_is_compared_as_a_whole() -> None:
    assert links_from("http://10.0.0.1/", "version 0.1 of it") == ()
    assert links_from("http://10.0.0.1/", "see 10.0.0.1") == ("http://10.0.0.1/",)


@pytest.mark.parametrize(
    ("link", "own", "beyond"),
    [
        ("https://evil.example/", "", True),
        ("https://evil.example/", "what does bank.example say?", True),
        ("https://bank.example/login", "what does bank.example say?", False),
        ("https://www.bank.example/login", "what does https://bank.example/x say?", False),
        ("https://api.bank.example/", "what does bank.example say?", False),
        ("https://bank.example/", "what does api.bank.example say?", True),
        ("https://evil.host.example/", "what does me.host.example say?", True),
        ("https://ank.example/", "what does bank.example say?", True),
    ],
)
def test_link_to_a_host_in_the_owners_text_is_the_owners(link: str, own: str, beyond: bool) -> None:
    assert links_beyond(f"see {link}", own) == ((link,) if beyond else ())


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "a.",
        "a-",
        "a@",
        "@a.",
        "www.",
        "a://",
        "a:",
        ".a",
        "aé",
        "xn--",
        "a.b ",
        "1.",
        "%41",
        ".",
    ],
)
def test_longest_allowed_text_is_scanned_quickly(piece: str) -> None:
    """Each piece is what one of the patterns could look at again from every place: that would take hours."""
    text = piece * (MEGABYTE // len(piece))
    links_from(text, text)
    links_beyond(text, text)


def test_links_to_too_many_sites_all_count_as_outside() -> None:
    many = [f"https://a{number}.example/" for number in range(MOST_SITES + 1)]
    assert links_from(" ".join(many), OUTSIDE) == tuple(many)
    assert links_from(" ".join(many[:-1]), OUTSIDE) == ()
