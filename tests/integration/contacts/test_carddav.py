"""Address books on a real CardDAV server (radicale)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from butlers.domain.errors import CredentialRefused
from butlers.modules.contacts.sources.base import CursorLost, SourceBatch
from butlers.modules.contacts.sources.carddav import CarddavSource, find_address_books
from support.contacts import ContactsButler
from support.in_process import MakeButler
from support.radicale import PASSWORD, USER, RadicaleServer, running_radicale, vcard


@pytest.fixture(scope="module")
def server() -> Iterator[RadicaleServer]:
    with running_radicale() as made:
        yield made


def source(url: str, password: str = PASSWORD) -> CarddavSource:
    async def read() -> str:
        return password

    return CarddavSource(url, USER, read)


async def all_of(batches: AsyncIterator[SourceBatch]) -> list[SourceBatch]:
    return [batch async for batch in batches]


async def test_address_books_are_found_from_the_address_of_the_server(
    server: RadicaleServer,
) -> None:
    friends, work = server.make_address_book("friends"), server.make_address_book("work")
    found = await find_address_books(server.url, USER, PASSWORD)
    assert {(one.name, one.url) for one in found} >= {("friends", friends), ("work", work)}
    (one,) = await find_address_books(friends, USER, PASSWORD)
    assert one.url == friends
    elsewhere = await find_address_books(f"{server.url}/{USER}/nothing/", USER, PASSWORD)
    assert elsewhere == found
    with pytest.raises(CredentialRefused, match="refused the password"):
        await find_address_books(server.url, USER, "wrong")


async def test_only_changes_are_fetched_and_a_lost_token_is_noticed(server: RadicaleServer) -> None:
    book = server.make_address_book("changes")
    for key in "abc":
        server.put_card(book, key, vcard(key, f"Person {key}"))
    batches = await all_of(source(book).pull(None, {}))
    cards = {card.external_id: card.etag for batch in batches for card in batch.cards}
    assert len(cards) == 3
    token = batches[-1].cursor
    server.put_card(book, "b", vcard("b", "Person B", "TEL:+49 30 123456"))
    server.delete_card(book, "c")
    changes = await all_of(source(book).pull(token, cards))
    (card,) = [card for batch in changes for card in batch.cards]
    assert card.card is not None
    assert (card.external_id[-5:], card.card.name) == ("b.vcf", "Person B")
    assert [path[-5:] for path in changes[-1].removed] == ["c.vcf"]
    server.forget_tokens()
    with pytest.raises(CursorLost):
        await all_of(source(book).pull(token, cards))


async def test_people_follow_the_address_book(
    server: RadicaleServer, make_butler: MakeButler
) -> None:
    made = make_butler("relationship")
    await made.start()
    contacts = ContactsButler(made)
    await contacts.connect("home")
    book = server.make_address_book("people")
    for number in range(120):
        key = f"p {number}"  # a path that has to be quoted
        server.put_card(book, key, vcard(key, f"Person {number}", f"EMAIL:p{number}@example.org"))

    async def pull() -> dict[str, int]:
        return (await contacts.sync.run(await contacts.account(), source(book))).as_dict()

    assert (await pull())["added"] == 120
    nothing = {"added": 0, "matched": 0, "changed": 0, "removed": 0, "to_confirm": 0}
    assert await pull() == nothing
    # The same content again: the server changes the ETag, and nobody changes.
    server.put_card(
        book, "p 1", vcard("p 1", "Person 1", "EMAIL:p1@example.org", "X-DEVICE:another")
    )
    assert await pull() == nothing
    server.put_card(book, "p 2", vcard("p 2", "Person Two", "TEL:+49 30 123456"))
    server.delete_card(book, "p 3")
    assert await pull() == {**nothing, "changed": 1, "removed": 1}
    server.forget_tokens()
    server.delete_card(book, "p 4")
    assert await pull() == {**nothing, "removed": 1}
    people = await contacts.people()
    assert len(people) == 118
    assert people["Person Two"] == {"phone": "+49 30 123456"}
