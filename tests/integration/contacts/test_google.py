"""Contacts of a Google account, against a server made from the documented People API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from butlers.domain.errors import ChannelBusy, ChannelFailed, ChannelUnavailable, CredentialRefused
from butlers.modules.contacts.card import CardDate, ContactWay
from butlers.modules.contacts.config import GoogleContactsAccount
from butlers.modules.contacts.sources.base import CursorLost, SourceBatch
from butlers.modules.contacts.sources.google import GoogleSource
from support.people_api import PeopleApiServer, quota_error


@pytest.fixture
def server() -> Iterator[PeopleApiServer]:
    made = PeopleApiServer(page=10)
    yield made
    made.close()


def source(server: PeopleApiServer, refresh_token: str = "refresh-1") -> GoogleSource:
    async def read(name: str) -> str:
        return {"G": refresh_token}[name]

    account = GoogleContactsAccount(
        address="me@gmail.com",
        client_id="client",
        secret="G",
        api_url=server.url,
        token_url=f"{server.url}/token",
    )
    return GoogleSource(account, read)


async def pull(found: GoogleSource, cursor: str | None = None) -> list[SourceBatch]:
    return [batch async for batch in found.pull(cursor, {})]


async def test_pages_are_followed_and_fields_are_read(server: PeopleApiServer) -> None:
    for number in range(25):
        server.put(f"c{number}", f"Person {number}", f"p{number}@example.org")
    server.put(
        "anna",
        "Anna Berg",
        "anna@example.org",
        nicknames=[{"value": "Annie"}],
        phoneNumbers=[{"value": "+49 30 1", "type": "mobile"}, {"value": "+49 30 1"}, "broken"],
        organizations=[{"name": "Acme", "title": "Engineer"}],
        birthdays=[{"date": {"month": 2, "day": 29}}, {"date": {"month": 13, "day": 1}}],
        events=[{"type": "Anniversary", "date": {"year": 2010, "month": 6, "day": 5}}],
    )
    server.put("nobody", "", None)
    batches = await pull(source(server))
    cards = {card.external_id: card for batch in batches for card in batch.cards}
    assert (len(batches), len(cards)) == (3, 27)
    assert cards["people/nobody"].card is None
    anna = cards["people/anna"].card
    assert anna is not None
    assert (anna.aliases, anna.company, anna.job) == (("Annie",), "Acme", "Engineer")
    assert anna.ways == (
        ContactWay("phone", "+49 30 1", "mobile"),
        ContactWay("email", "anna@example.org", "home"),
    )
    assert anna.dates == (CardDate("birthday", 2, 29), CardDate("anniversary", 6, 5, 2010))
    first, *others = server.queries
    assert all({**one, "pageToken": ""} == {**first, "pageToken": ""} for one in others)


@pytest.mark.parametrize("gone", [False, True])
async def test_sync_token_gives_changes_until_it_expires(
    server: PeopleApiServer, gone: bool
) -> None:
    server.put("a", "A")
    server.put("b", "B")
    token = (await pull(source(server)))[-1].cursor
    server.put("b", "New B")
    server.delete("a")
    (batch,) = await pull(source(server), token)
    assert ([card.card and card.card.name for card in batch.cards], batch.removed) == (
        ["New B"],
        ("people/a",),
    )
    server.oldest, server.gone = server.version + 1, gone
    with pytest.raises(CursorLost):
        await pull(source(server), token)


async def test_errors_say_what_to_do(server: PeopleApiServer) -> None:
    found = source(server)
    await pull(found)
    server.access_tokens.clear()  # a revoked access token is renewed once
    await pull(found)
    server.errors = [quota_error()]
    with pytest.raises(ChannelBusy, match="quota"):
        await pull(found)
    server.errors = [(503, {})]
    with pytest.raises(ChannelUnavailable, match="503"):
        await pull(found)
    server.errors = [(418, {})]
    with pytest.raises(ChannelFailed, match="418"):
        await pull(found)
    server.errors = [(403, {"error": {"status": "PERMISSION_DENIED"}})]
    with pytest.raises(CredentialRefused, match="refused the access"):
        await pull(found)
    with pytest.raises(CredentialRefused) as refused:
        await pull(source(server, "revoked"))
    assert "butlers connect google me@gmail.com" in (refused.value.hint or "")
