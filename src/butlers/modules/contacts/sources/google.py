"""Contacts of a Google account, by the People API: pages, sync tokens, quotas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import date
from typing import Any

import httpx

from butlers.domain.errors import (
    ChannelBusy,
    ChannelFailed,
    ChannelUnavailable,
    CredentialRefused,
)
from butlers.modules.contacts.card import (
    MAX_WAYS,
    CardDate,
    ContactCard,
    ContactWay,
    WayKind,
    distinct,
    one_line,
)
from butlers.modules.contacts.config import GoogleContactsAccount
from butlers.modules.contacts.sources.base import CursorLost, SourceBatch, SourceCard
from butlers.wire.oauth import AccessTokens, OAuthClient

SCOPE = "https://www.googleapis.com/auth/contacts.readonly"
TIMEOUT_S = 60.0
PAGE = 1_000  # the most that the API gives at once
MAX_PAGES = 1_000
FIELDS = (
    "names,nicknames,emailAddresses,phoneNumbers,addresses,urls,imClients,organizations,birthdays,"
    "events,metadata"
)
_WAYS: tuple[tuple[str, WayKind, str], ...] = (
    ("phoneNumbers", "phone", "value"),
    ("emailAddresses", "email", "value"),
    ("imClients", "chat", "username"),
    ("urls", "website", "value"),
    ("addresses", "address", "formattedValue"),
)
_EXPIRED = "EXPIRED_SYNC_TOKEN"

Page = dict[str, Any]


class GoogleSource:
    def __init__(
        self, account: GoogleContactsAccount, secret: Callable[[str], Awaitable[str]]
    ) -> None:
        self._account = account
        self._secret = secret
        self._tokens = AccessTokens()

    async def pull(
        self, cursor: str | None, known: Mapping[str, str | None]
    ) -> AsyncIterator[SourceBatch]:
        """Yield the changes since a sync token; see ContactSource."""
        query: dict[str, str] = {
            "personFields": FIELDS,
            "pageSize": str(PAGE),
            "requestSyncToken": "true",
            **({"syncToken": cursor} if cursor else {}),
        }
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            for _ in range(MAX_PAGES):
                page = await self._page(client, query)
                yield _batch(page)
                following = page.get("nextPageToken")
                if not following:
                    return
                query["pageToken"] = str(following)
        raise ChannelFailed(f"Google gave more than {MAX_PAGES} pages")

    async def _page(self, client: httpx.AsyncClient, query: Mapping[str, str]) -> Page:
        answer = await self._get(client, query)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._tokens.forget()
            answer = await self._get(client, query)
        if answer.is_success:
            return _json(answer)
        raise _refusal(answer)

    async def _get(self, client: httpx.AsyncClient, query: Mapping[str, str]) -> httpx.Response:
        account = self._account
        secret = await self._secret(account.client_secret) if account.client_secret else None
        command = f"butlers connect google {account.address}"
        oauth = OAuthClient(account.token_url, account.client_id, secret, command)
        token = await self._tokens.current(oauth, await self._secret(account.secret))
        try:
            return await client.get(
                f"{account.api_url.rstrip('/')}/v1/people/me/connections",
                params=dict(query),
                headers={"Authorization": f"Bearer {token}"},
            )
        except httpx.HTTPError as error:
            raise ChannelUnavailable(f"Google does not answer ({type(error).__name__})") from None


def _refusal(answer: httpx.Response) -> Exception:
    status = answer.status_code
    if status == httpx.codes.GONE or (
        status == httpx.codes.BAD_REQUEST and _EXPIRED in answer.text[:10_000]
    ):
        return CursorLost("Google has forgotten the sync token")
    if status == httpx.codes.TOO_MANY_REQUESTS or "RESOURCE_EXHAUSTED" in answer.text[:10_000]:
        return ChannelBusy(f"Google's quota is used up ({status})")
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return CredentialRefused(
            f"Google refused the access to your contacts ({status})",
            hint="run `butlers connect google` again, and allow it to see your contacts",
        )
    if status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return ChannelUnavailable(f"Google answered {status}")
    return ChannelFailed(f"Google answered {status}")


def _json(answer: httpx.Response) -> Page:
    try:
        found = answer.json()
    except ValueError:
        raise ChannelFailed("Google's answer is not JSON") from None
    if not isinstance(found, dict):
        raise ChannelFailed("Google's answer is not an object")
    return found


def _batch(page: Page) -> SourceBatch:
    cards, removed = [], []
    for person in _objects(page, "connections"):
        key = person.get("resourceName")
        if not isinstance(key, str) or not key:
            continue
        metadata = person.get("metadata")
        if isinstance(metadata, dict) and metadata.get("deleted") is True:
            removed.append(key)
        else:
            etag = person.get("etag")
            cards.append(SourceCard(key, etag if isinstance(etag, str) else None, _card(person)))
    token = page.get("nextSyncToken")
    return SourceBatch(
        cards=tuple(cards),
        removed=tuple(removed),
        cursor=token if isinstance(token, str) else None,
    )


def _card(person: Page) -> ContactCard | None:
    organization = next(_objects(person, "organizations"), {})
    name = next((_text(one, "displayName") for one in _objects(person, "names")), None)
    name = name or _text(organization, "name")
    if name is None:
        return None
    return ContactCard(
        name=name,
        aliases=distinct(
            [str(one.get("value", "")) for one in _objects(person, "nicknames")], name
        ),
        company=_text(organization, "name"),
        job=_text(organization, "title"),
        ways=_ways(person),
        dates=_dates(person),
    )


def _ways(person: Page) -> tuple[ContactWay, ...]:
    found: dict[tuple[str, str], ContactWay] = {}
    for field, kind, key in _WAYS:
        for one in _objects(person, field):
            value = _text(one, key)
            if value is not None and len(found) < MAX_WAYS:
                way = ContactWay(kind, value, _text(one, "type"))
                found.setdefault(way.key, way)
    return tuple(found.values())


def _dates(person: Page) -> tuple[CardDate, ...]:
    found: dict[str, CardDate] = {}
    labeled = [("birthday", one) for one in _objects(person, "birthdays")]
    labeled += [(_text(one, "type") or "event", one) for one in _objects(person, "events")]
    for label, one in labeled:
        day = _date(label.casefold(), one.get("date"))
        if day is not None:
            found.setdefault(day.label, day)
    return tuple(found.values())


def _date(label: str, given: Any) -> CardDate | None:
    if not isinstance(given, dict):
        return None
    year, month, day = (given.get(key) for key in ("year", "month", "day"))
    if not isinstance(month, int) or not isinstance(day, int):
        return None
    year = year if isinstance(year, int) and year > 0 else None
    try:
        date(year or 2000, month, day)
    except ValueError:
        return None
    return CardDate(label, month, day, year)


def _objects(value: Mapping[str, Any], key: str) -> Iterator[Page]:
    """Yield the objects in a list of an answer; anything else is left out."""
    found = value.get(key)
    if isinstance(found, list):
        yield from (one for one in found if isinstance(one, dict))


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    return one_line(found) if isinstance(found, str) else None
