"""CalDAV over HTTP: listing, reading and writing calendar files, guarded by ETags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import httpx

from butlers.domain.errors import ButlersError, ChannelUnavailable, CredentialRefused
from butlers.modules.calendar.ical import MAX_BYTES

TIMEOUT_S = 30.0
BATCH = 200  # files in one request
_DAV, _CAL = "{DAV:}", "{urn:ietf:params:xml:ns:caldav}"
_LIST = '<d:propfind xmlns:d="DAV:"><d:prop><d:getetag/><d:sync-token/></d:prop></d:propfind>'
_CHANGES = (
    '<d:sync-collection xmlns:d="DAV:"><d:sync-token>{token}</d:sync-token>'
    "<d:sync-level>1</d:sync-level><d:prop><d:getetag/></d:prop></d:sync-collection>"
)
_READ = (
    '<c:calendar-multiget xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav">'
    "<d:prop><d:getetag/><c:calendar-data/></d:prop>{hrefs}</c:calendar-multiget>"
)
_FIND = (
    '<d:propfind xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav"><d:prop>'
    "<d:current-user-principal/><c:calendar-home-set/><d:resourcetype/><d:displayname/>"
    "</d:prop></d:propfind>"
)


class CalendarServerError(ButlersError):
    """The calendar server answered in a way that cannot be used."""

    code = "calendar_server_error"
    default_hint = "check the address of the calendar; butlers connect caldav finds it"


class SyncTokenLost(CalendarServerError):
    """The server no longer knows the sync token."""

    code = "sync_token_lost"


class EtagMismatch(CalendarServerError):
    """The file on the server is another one than we have seen."""

    code = "etag_mismatch"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    href: str
    etag: str
    data: str


@dataclass(frozen=True, slots=True)
class RemoteChanges:
    """Files that changed (with their ETags) or are gone, and the token for the next question."""

    changed: dict[str, str]
    gone: list[str]
    token: str | None


@dataclass(frozen=True, slots=True)
class FoundCalendar:
    name: str
    url: str


class DavClient:
    """One CalDAV collection, or the server on which collections are looked for."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self._url = url if url.endswith("/") else f"{url}/"
        self._http = httpx.AsyncClient(
            auth=(username, password), timeout=TIMEOUT_S, trust_env=False, follow_redirects=False
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> DavClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def href_of(self, uid: str) -> str:
        """Return the path under which a new file is written."""
        return urlsplit(urljoin(self._url, f"{quote(uid, safe='')}.ics")).path

    async def everything(self) -> RemoteChanges:
        """List all files of the collection."""
        tree = await self._xml("PROPFIND", self._url, _LIST, depth="1")
        found = _etags(tree)
        found.changed.pop(unquote(urlsplit(self._url).path), None)
        return found

    async def changes(self, token: str) -> RemoteChanges:
        """List what changed since the token. Raises SyncTokenLost."""
        body = _CHANGES.format(token=escape(token))
        return _etags(await self._xml("REPORT", self._url, body, depth="1"))

    async def read(self, hrefs: list[str]) -> list[RemoteFile]:
        """Return the files; one that is gone meanwhile is left out."""
        found: list[RemoteFile] = []
        for start in range(0, len(hrefs), BATCH):
            listed = "".join(
                f"<d:href>{escape(quote(one))}</d:href>" for one in hrefs[start : start + BATCH]
            )
            tree = await self._xml("REPORT", self._url, _READ.format(hrefs=listed), depth="1")
            found += _files(tree)
        return found

    async def write(self, href: str, data: str, etag: str | None) -> str | None:
        """Write a file, a new one without an ETag; return its new ETag if the server says it.

        Raises EtagMismatch if the file is not the one that the ETag names.
        """
        guard = {"If-Match": etag} if etag else {"If-None-Match": "*"}
        headers = {**guard, "Content-Type": "text/calendar; charset=utf-8"}
        answer = await self._send("PUT", self._at(href), data, headers)
        found: str | None = answer.headers.get("ETag")
        return found

    async def delete(self, href: str, etag: str) -> None:
        await self._send("DELETE", self._at(href), "", {"If-Match": etag}, missing=True)

    async def find_calendars(self) -> list[FoundCalendar]:
        """Return the calendars of the user: the address itself, or what its principal names."""
        places, seen = [self._url], set[str]()
        found: dict[str, FoundCalendar] = {}
        while places and len(seen) < 10:
            place = places.pop(0)
            if place in seen:
                continue
            seen.add(place)
            tree = await self._xml("PROPFIND", place, _FIND, depth="1")
            for response in tree.iter(f"{_DAV}response"):
                url = urljoin(place, response.findtext(f"{_DAV}href", ""))
                if response.find(f".//{_DAV}resourcetype/{_CAL}calendar") is not None:
                    name = response.findtext(f".//{_DAV}displayname") or urlsplit(url).path
                    found[url] = FoundCalendar(name, url)
                for kind in (f"{_DAV}current-user-principal", f"{_CAL}calendar-home-set"):
                    href = response.findtext(f".//{kind}/{_DAV}href")
                    if href and url == urljoin(place, urlsplit(place).path):
                        places.append(urljoin(place, href))
        return sorted(found.values(), key=lambda one: one.url)

    def _at(self, href: str) -> str:
        return urljoin(self._url, quote(unquote(href)))

    async def _xml(self, method: str, url: str, body: str, *, depth: str) -> ElementTree.Element:
        headers = {"Depth": depth, "Content-Type": "application/xml; charset=utf-8"}
        answer = await self._send(method, url, body, headers)
        if len(answer.content) > 4 * MAX_BYTES:
            raise CalendarServerError("the calendar server's answer is too large")
        try:
            return ElementTree.fromstring(answer.content)
        except ElementTree.ParseError as error:
            raise CalendarServerError(f"the calendar server answered no XML: {error}") from None

    async def _send(
        self, method: str, url: str, body: str, headers: dict[str, str], *, missing: bool = False
    ) -> httpx.Response:
        try:
            answer = await self._http.request(method, url, content=body.encode(), headers=headers)
        except httpx.HTTPError as error:
            raise ChannelUnavailable(f"the calendar server cannot be reached: {error!r}") from error
        if answer.is_success or (missing and answer.status_code == 404):
            return answer
        raise _failure(method, answer)


def _failure(method: str, answer: httpx.Response) -> ButlersError:
    status = answer.status_code
    if status in (401, 403) and b"valid-sync-token" not in answer.content:
        return CredentialRefused(
            f"the calendar server refused the login ({status})",
            hint="run butlers connect caldav again",
        )
    if status == 412:
        return EtagMismatch("the event was changed on the server")
    if method == "REPORT" and status in (400, 403, 409, 410):
        return SyncTokenLost("the calendar server has lost the sync token")
    if status in (429, 503) or status >= 500:
        return ChannelUnavailable(f"the calendar server answered {status}")
    return CalendarServerError(f"the calendar server answered {status} to {method}")


def _etags(tree: ElementTree.Element) -> RemoteChanges:
    changed: dict[str, str] = {}
    gone: list[str] = []
    for response in tree.iter(f"{_DAV}response"):
        href = unquote(urlsplit(response.findtext(f"{_DAV}href", "")).path)
        etag = response.findtext(f".//{_DAV}getetag")
        if " 404 " in response.findtext(f"{_DAV}status", ""):
            gone.append(href)
        elif etag and not href.endswith("/"):
            changed[href] = etag
    return RemoteChanges(changed, gone, _token(tree))


def _token(tree: ElementTree.Element) -> str | None:
    found = tree.find(f"{_DAV}sync-token")
    if found is None:
        found = tree.find(f".//{_DAV}sync-token")
    return found.text if found is not None else None


def _files(tree: ElementTree.Element) -> list[RemoteFile]:
    files = []
    for response in tree.iter(f"{_DAV}response"):
        etag: Any = response.findtext(f".//{_DAV}getetag")
        data = response.findtext(f".//{_CAL}calendar-data")
        href = unquote(urlsplit(response.findtext(f"{_DAV}href", "")).path)
        if etag and data:
            files.append(RemoteFile(href, etag, data))
    return files
