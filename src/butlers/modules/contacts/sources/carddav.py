"""Address books on CardDAV servers: changes by sync token, or by ETag where a server has no tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit
from xml.sax.saxutils import escape

import httpx

from butlers.domain.errors import NotFound
from butlers.modules.contacts.sources.base import CursorLost, SourceBatch, SourceCard
from butlers.modules.contacts.sources.webdav import (
    DAV,
    DavItem,
    DavRefused,
    WebDavClient,
    items_of,
)
from butlers.modules.contacts.vcard import read_vcards

CARD = "{urn:ietf:params:xml:ns:carddav}"
FETCHED = 100  # cards of one request
MAX_ROUNDS = 1_000  # answers of a server that gives its changes in parts
_HEAD = '<?xml version="1.0" encoding="utf-8"?>'
_TRUNCATED = 507


@dataclass(frozen=True, slots=True)
class AddressBook:
    """An address book that a server offers."""

    url: str
    name: str


@dataclass(slots=True)
class _Listing:
    etags: dict[str, str]
    removed: list[str]
    token: str | None


class CarddavSource:
    def __init__(self, url: str, user: str, password: Callable[[], Awaitable[str]]) -> None:
        self._url = url if url.endswith("/") else f"{url}/"
        self._user = user
        self._password = password

    async def pull(
        self, cursor: str | None, known: Mapping[str, str | None]
    ) -> AsyncIterator[SourceBatch]:
        """Yield the changes since a sync token; see ContactSource."""
        async with WebDavClient(self._url, self._user, await self._password()) as client:
            listing = await self._list(client, cursor)
            changed = [key for key, etag in listing.etags.items() if known.get(key, "") != etag]
            unchanged = tuple(listing.etags.keys() - set(changed))
            for start in range(0, len(changed), FETCHED):
                yield await self._fetch(client, changed[start : start + FETCHED])
            yield SourceBatch(
                removed=tuple(listing.removed), unchanged=unchanged, cursor=listing.token
            )

    async def _list(self, client: WebDavClient, cursor: str | None) -> _Listing:
        try:
            return await self._list_changes(client, cursor)
        except DavRefused as error:
            if cursor is not None and error.status != httpx.codes.NOT_FOUND:
                raise CursorLost(f"the server refused the sync token ({error.status})") from None
            if error.status == httpx.codes.NOT_FOUND:
                raise
        return await self._list_all(client)

    async def _list_changes(self, client: WebDavClient, cursor: str | None) -> _Listing:
        listing = _Listing({}, [], cursor)
        own = _path(self._url)
        for _ in range(MAX_ROUNDS):
            body = (
                f'{_HEAD}<d:sync-collection xmlns:d="DAV:"><d:sync-token>{escape(listing.token or "")}'
                "</d:sync-token><d:sync-level>1</d:sync-level>"
                "<d:prop><d:getetag/></d:prop></d:sync-collection>"
            )
            answer = await client.ask("REPORT", self._url, body)
            before, listing.token = listing.token, answer.findtext(f"{DAV}sync-token")
            truncated = False
            for item in items_of(answer):
                if item.path.rstrip("/") == own:
                    truncated = truncated or item.status == _TRUNCATED
                elif item.status == httpx.codes.NOT_FOUND:
                    listing.etags.pop(item.path, None)
                    listing.removed.append(item.path)
                else:
                    listing.etags[item.path] = item.text(f"{DAV}getetag") or ""
            if not truncated or listing.token in (None, before):
                return listing
        return listing

    async def _list_all(self, client: WebDavClient) -> _Listing:
        """List every card with its ETag, on a server without sync tokens."""
        body = f'{_HEAD}<d:propfind xmlns:d="DAV:"><d:prop><d:getetag/></d:prop></d:propfind>'
        answer = await client.ask("PROPFIND", self._url, body, depth="1")
        own = _path(self._url)
        etags = {
            item.path: item.text(f"{DAV}getetag") or ""
            for item in items_of(answer)
            if item.path.rstrip("/") != own
        }
        return _Listing(etags, [], None)

    async def _fetch(self, client: WebDavClient, paths: Sequence[str]) -> SourceBatch:
        hrefs = "".join(f"<d:href>{escape(quote(path))}</d:href>" for path in paths)
        body = (
            f'{_HEAD}<c:addressbook-multiget xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:carddav">'
            f"<d:prop><d:getetag/><c:address-data/></d:prop>{hrefs}</c:addressbook-multiget>"
        )
        found = list(items_of(await client.ask("REPORT", self._url, body, depth="1")))
        cards = tuple(_card(item) for item in found if item.status == httpx.codes.OK)
        read = {card.external_id for card in cards}
        # A card that was deleted between the two requests is reported again by the next one.
        return SourceBatch(cards=cards, unchanged=tuple(set(paths) - read))


def _card(item: DavItem) -> SourceCard:
    text = item.text(f"{CARD}address-data") or ""
    card = next(read_vcards(text), None)
    return SourceCard(item.path, item.text(f"{DAV}getetag"), card)


def _path(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


async def find_address_books(url: str, user: str, password: str) -> list[AddressBook]:
    """Return the address books at an address: of a book itself, of a user, or of a server."""
    async with WebDavClient(url, user, password) as client:
        places = (url, urljoin(url, "/.well-known/carddav"))
        for place in places:
            try:
                found = await _books_at(client, place)
            except DavRefused:
                continue
            if found:
                return found
    raise NotFound(f"there is no address book at {url}", hint="give the address of the book itself")


async def _books_at(client: WebDavClient, place: str) -> list[AddressBook]:
    books = await _list_books(client, place, "0")
    if books:
        return books
    principal = await _href(client, place, "d:current-user-principal", "DAV:")
    home = await _href(client, principal or place, "c:addressbook-home-set", CARD[1:-1])
    return await _list_books(client, home or place, "1")


async def _list_books(client: WebDavClient, place: str, depth: str) -> list[AddressBook]:
    body = (
        f'{_HEAD}<d:propfind xmlns:d="DAV:"><d:prop><d:resourcetype/><d:displayname/></d:prop>'
        "</d:propfind>"
    )
    books = []
    for item in items_of(await client.ask("PROPFIND", place, body, depth)):
        kind = item.properties.get(f"{DAV}resourcetype")
        if kind is not None and kind.find(f"{CARD}addressbook") is not None:
            name = item.text(f"{DAV}displayname") or item.path.rstrip("/").rpartition("/")[2]
            books.append(AddressBook(urljoin(client.url, quote(item.path)), name))
    return books


async def _href(client: WebDavClient, place: str, name: str, space: str) -> str | None:
    body = (
        f'{_HEAD}<d:propfind xmlns:d="DAV:" xmlns:c="{CARD[1:-1]}"><d:prop><{name}/></d:prop>'
        "</d:propfind>"
    )
    tag = f"{{{space}}}{name.partition(':')[2]}"
    for item in items_of(await client.ask("PROPFIND", place, body)):
        found = item.properties.get(tag)
        if found is not None and (href := found.findtext(f"{DAV}href")):
            return href
    return None
