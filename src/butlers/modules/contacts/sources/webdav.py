"""WebDAV requests: XML in and out, bounded, with the errors of this code base."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urljoin, urlsplit
from xml.etree.ElementTree import Element, ParseError

import httpx
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from butlers.domain.errors import (
    ChannelBusy,
    ChannelError,
    ChannelFailed,
    ChannelUnavailable,
    CredentialRefused,
)

TIMEOUT_S = 60.0
MAX_ANSWER = 64 * 1024 * 1024
DAV = "{DAV:}"
_REDIRECTS = (301, 302, 307, 308)
_MULTISTATUS = 207


class DavRefused(ChannelError):
    """The server refused a request; the status says why."""

    code = "dav_refused"
    status = 0


@dataclass(frozen=True, slots=True)
class DavItem:
    """One resource of a multistatus answer."""

    path: str
    status: int  # of the resource; 200 if only its properties have one
    properties: dict[str, Element]  # those that were found

    def text(self, name: str) -> str | None:
        found = self.properties.get(name)
        return found.text if found is not None else None


class WebDavClient:
    """A connection to one server. Credentials are sent to that server alone."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self._client = httpx.AsyncClient(
            auth=(user, password), timeout=TIMEOUT_S, trust_env=False, follow_redirects=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def ask(self, method: str, path: str, body: str, depth: str = "0") -> Element:
        """Send a request with an XML body and return the multistatus answer."""
        status, content = await self._send(method, urljoin(self.url, path), body, depth)
        if status != _MULTISTATUS:
            raise _refusal(status, method, self.url)
        try:
            return fromstring(content, forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError):
            raise ChannelFailed(
                f"{urlsplit(self.url).hostname} answered with invalid XML"
            ) from None

    async def _send(self, method: str, url: str, body: str, depth: str) -> tuple[int, bytes]:
        headers = {"Depth": depth, "Content-Type": "application/xml; charset=utf-8"}
        host = urlsplit(url).hostname
        try:
            for _ in range(5):
                async with self._client.stream(
                    method, url, content=body.encode(), headers=headers
                ) as answer:
                    if answer.status_code not in _REDIRECTS:
                        return answer.status_code, await _read(answer)
                    url = _same_site(url, answer.headers.get("location", ""))
        except httpx.HTTPError as error:
            raise ChannelUnavailable(f"{host} does not answer ({type(error).__name__})") from None
        raise ChannelFailed(f"{host} redirects without end")


async def _read(answer: httpx.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.aiter_bytes():
        size += len(part)
        if size > MAX_ANSWER:
            raise ChannelFailed(f"the answer of the server is larger than {MAX_ANSWER >> 20} MB")
        parts.append(part)
    return b"".join(parts)


def _same_site(url: str, location: str) -> str:
    """Return where a redirect leads, if that is a server of the same site and no less safe."""
    target = urljoin(url, location)
    old, new = urlsplit(url), urlsplit(target)
    site = ".".join((old.hostname or "").split(".")[-2:])
    host = new.hostname or ""
    is_same = host == old.hostname or host.endswith(f".{site}")
    if not is_same or (old.scheme == "https" and new.scheme != "https"):
        raise ChannelFailed(f"{old.hostname} redirects to another site, {host[:80]}")
    return target


def _refusal(status: int, method: str, url: str) -> ChannelError:
    host = urlsplit(url).hostname
    if status == httpx.codes.UNAUTHORIZED:
        return CredentialRefused(
            f"{host} refused the password", hint="run `butlers connect carddav` again"
        )
    if status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
        return ChannelBusy(f"{host} asks for a pause ({status})")
    if status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return ChannelUnavailable(f"{host} answered {status}")
    refused = DavRefused(f"{host} answered {status} to {method}", hint="check the address")
    refused.status = status
    return refused


def items_of(answer: Element) -> Iterator[DavItem]:
    """Yield the resources of a multistatus answer."""
    for response in answer.iter(f"{DAV}response"):
        path = unquote(urlsplit(response.findtext(f"{DAV}href", "").strip()).path)
        own = response.findtext(f"{DAV}status")
        found: dict[str, Element] = {}
        for part in response.iter(f"{DAV}propstat"):
            if _code(part.findtext(f"{DAV}status")) == httpx.codes.OK:
                found |= {one.tag: one for props in part.iter(f"{DAV}prop") for one in props}
        yield DavItem(path, _code(own) if own else 200, found)


def _code(status: str | None) -> int:
    """Return the number in a line such as "HTTP/1.1 404 Not Found"."""
    words = (status or "").split()
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
