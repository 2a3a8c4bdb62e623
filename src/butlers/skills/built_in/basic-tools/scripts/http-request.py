#!/usr/bin/env python3
"""Make one HTTP request to an allowed public host. Redirects are reported, not followed."""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from _script import Refused, main
from _tool import text

LIMIT = 256 * 1024
TIMEOUT_S = 20
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PORTS = {"http": 80, "https": 443}
# Set by the connection, or able to name another host than the checked one.
OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade"})
# A public address that serves metadata inside a cloud.
METADATA = frozenset({"168.63.129.16"})
TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # contains an IPv4 address

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Target:
    secure: bool
    host: str
    port: int
    path: str


def http_request(arguments: dict[str, Any]) -> dict[str, Any]:
    target = parse(text(arguments, "url"))
    refuse_unless_allowed(target, os.environ.get("HTTP_ALLOWED_HOSTS", ""))
    method = text(arguments, "method", "GET").upper()
    if method not in METHODS:
        raise Refused(f"unknown method {method!r}; use {', '.join(METHODS)}")
    body, headers = _body(arguments), _headers(arguments)
    if "json" in arguments:
        headers.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.default_port = PORTS[
        "https" if target.secure else "http"
    ]  # else the Host header includes the port
    connection.sock = _connect(target, public_addresses(target))
    try:
        connection.request(method, target.path, body=body, headers=headers)
        return _answer(connection.getresponse())
    except (http.client.HTTPException, ValueError) as error:
        raise Refused(f"the request failed: {error!r}") from error
    finally:
        connection.close()


def parse(url: str) -> Target:
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise Refused(f"{url!r} is not a valid URL: {error}") from error
    if parts.scheme not in PORTS or not host or not url.isprintable() or " " in url:
        raise Refused(f"{url!r} is not an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise Refused("the URL contains a user name; use a header instead")
    try:
        name = host if ":" in host else host.encode("idna").decode("ascii")
        query = f"?{parts.query}" if parts.query else ""
        path = f"{parts.path or '/'}{query}".encode("ascii").decode()
    except UnicodeError as error:
        raise Refused(f"{url!r} must be ASCII: {error}") from error
    secure = parts.scheme == "https"
    return Target(secure, name.lower().rstrip("."), port or PORTS[parts.scheme], path)


def refuse_unless_allowed(target: Target, allowed: str) -> None:
    for entry in re.split(r"[\s,]+", allowed.strip().lower()):
        host, _colon, port = entry.partition(":")
        ports = {int(port)} if port.isdigit() else set(PORTS.values())
        fits = target.host.endswith(host[1:]) if host.startswith("*.") else target.host == host
        if entry and fits and target.port in ports:
            return
    raise Refused(
        f"{target.host}:{target.port} is not allowed; a person adds hosts to HTTP_ALLOWED_HOSTS"
    )


def public_addresses(target: Target) -> list[str]:
    """Resolve the host once. Raise Refused if any of its addresses is not public."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"{target.host} cannot be resolved: {error.strerror}") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        if not is_public(address):
            raise Refused(f"{target.host} resolves to {address}, which is not a public address")
    return addresses


def is_public(written: str) -> bool:
    address = ipaddress.ip_address(written.partition("%")[0])
    inner = _inner(address)
    if inner is not None:
        return is_public(str(inner))
    return address.is_global and not address.is_multicast and str(address) not in METADATA


def _inner(address: Address) -> Address | None:
    """Return the IPv4 address that an IPv6 address contains."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in TRANSLATED:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]


def _connect(target: Target, addresses: list[str]) -> socket.socket:
    """Connect to the checked addresses; a second DNS lookup could return others."""
    failure: OSError | None = None
    for address in addresses:
        try:
            plain = socket.create_connection((address, target.port), timeout=TIMEOUT_S)
        except OSError as error:
            failure = error
            continue
        if not target.secure:
            return plain
        return ssl.create_default_context().wrap_socket(plain, server_hostname=target.host)
    raise Refused(f"{target.host} cannot be reached: {failure}")


def _body(arguments: dict[str, Any]) -> bytes | None:
    if "json" in arguments:
        return json.dumps(arguments["json"]).encode()
    return text(arguments, "body").encode() if "body" in arguments else None


def _headers(arguments: dict[str, Any]) -> dict[str, str]:
    headers = arguments.get("headers", {})
    if not isinstance(headers, dict) or not all(
        isinstance(value, str) for value in headers.values()
    ):
        raise Refused("headers must be an object with text values")
    for name in headers:
        if name.strip().lower() in OWN_HEADERS:
            raise Refused(f"the header {name!r} is set by the connection")
    return {"User-Agent": "butlers", "Accept-Encoding": "identity"} | headers


def _answer(response: http.client.HTTPResponse) -> dict[str, Any]:
    content = response.read(LIMIT + 1)
    headers = {name.lower(): value for name, value in response.getheaders()}
    answer = {"status": response.status, "headers": headers, "truncated": len(content) > LIMIT}
    if 300 <= response.status < 400:
        answer["location"] = headers.get("location")
    content = content[:LIMIT]
    charset = response.headers.get_content_charset() or "utf-8"
    try:
        return answer | {"body": content.decode(charset)}
    except (UnicodeDecodeError, LookupError):
        return answer | {"body": base64.b64encode(content).decode(), "encoding": "base64"}


if __name__ == "__main__":
    main(http_request)
