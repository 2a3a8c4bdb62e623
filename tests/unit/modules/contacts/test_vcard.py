"""vCards of versions 2.1, 3.0 and 4.0, also large and broken ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.contacts.addresses import comparable, region_of_zone
from butlers.modules.contacts.card import CardDate, ContactCard, ContactWay
from butlers.modules.contacts.vcard import (
    read_contact_date,
    read_vcards,
    split_escaped,
    unescape,
)

OLD = """BEGIN:VCARD
VERSION:2.1
N;CHARSET=ISO-8859-1;ENCODING=QUOTED-PRINTABLE:M=FCller;J=F6rg
FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:J=C3=B6rg=20=
M=C3=BCller
TEL;HOME;VOICE:030 123456
TEL;CELL;PREF:+49 170 1234567
EMAIL;INTERNET:joerg@example.org
NOTE;ENCODING=QUOTED-PRINTABLE:a long note that goes=
 on in the next line
END:VCARD
"""
NEW = """BEGIN:VCARD
VERSION:4.0
UID:urn:uuid:1
FN:Ann\\, the elder
NICKNAME:Annie,Ann\\, the elder
item1.TEL;VALUE=uri;TYPE="voice,work":tel:+1-212-555-0100;ext=5
item1.X-ABLabel:office
EMAIL;TYPE=work;PREF=1:ann@example.org
EMAIL:ANN@example.org
ADR;LABEL="Main: St; 1":;;Main St 1;Rome;;123;Italy
IMPP:xmpp:ann@chat.example.org
BDAY:--0229
ANNIVERSARY:20100605T000000Z
ORG:Acme\\; Co;Sales
CATEGORIES:friends,tennis
END:VCARD
"""


def test_version_2_with_quoted_printable_and_other_character_sets() -> None:
    (card,) = read_vcards(OLD)
    assert card is not None
    assert card.name == "Jörg Müller"
    assert card.ways == (
        ContactWay("phone", "030 123456", "home"),
        ContactWay("phone", "+49 170 1234567", "mobile"),
        ContactWay("email", "joerg@example.org"),
    )
    assert card.notes == ("a long note that goes on in the next line",)


def test_version_4_with_groups_quotes_and_addresses() -> None:
    (card,) = read_vcards(NEW)
    assert card is not None
    assert (card.name, card.aliases, card.company) == ("Ann, the elder", ("Annie",), "Acme; Co")
    assert card.ways == (
        ContactWay("phone", "+1-212-555-0100", "work"),
        ContactWay("email", "ann@example.org", "work"),
        ContactWay("chat", "ann@chat.example.org"),
        ContactWay("address", "Main St 1, Rome, 123, Italy"),
    )
    assert card.dates == (CardDate("birthday", 2, 29), CardDate("anniversary", 6, 5, 2010))
    assert ContactCard.from_fields(card.fields()).ways == card.ways


def test_mixture_of_versions_and_ten_thousand_lines() -> None:
    many = "\n".join(f"X-FILL-{number}:{'x' * 60}" for number in range(10_000))
    picture = "PHOTO;ENCODING=BASE64:" + "\n ".join("QUJD" * 18 for _ in range(10_000))
    large = NEW.replace("END:VCARD", f"{picture}\n{many}\nEND:VCARD")
    cards = list(read_vcards(f"\ufeff{OLD}\r\n{large}BEGIN:VCARD\nEND:VCARD\nBEGIN:VCARD\nFN:half"))
    assert [card.name if card else None for card in cards[1:]] == ["Ann, the elder", None]


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    list(read_vcards(f"BEGIN:VCARD\n{text}\nEND:VCARD"))
    assert ";".join(split_escaped(text, ";")) == text
    assert len(unescape(text)) <= len(text)


def test_dates_of_contacts() -> None:
    assert read_contact_date("--0229") == CardDate("", 2, 29)
    assert read_contact_date("1990-05-04") == CardDate("", 5, 4, 1990)
    assert read_contact_date("1604-02-29") == CardDate("", 2, 29)
    assert read_contact_date("2023-02-29") is None
    assert read_contact_date("soon") is None


def test_addresses_are_compared_in_one_form() -> None:
    same = {comparable("phone", text, "DE") for text in ("030 123456", "+49 (30) 12 34 56")}
    assert same == {"+4930123456"}
    assert comparable("phone", "0049 30 123456", None) == "+4930123456"
    assert comparable("phone", "030 123456", None) is None
    assert comparable("phone", "1" * 1000, "DE") is None
    assert comparable("email", " Tom@Example.ORG ", None) == "tom@example.org"
    assert comparable("email", "no address", None) is None
    assert comparable("website", "https://example.org", None) is None
    assert (region_of_zone("Europe/Berlin"), region_of_zone("UTC")) == ("DE", None)
