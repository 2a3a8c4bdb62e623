"""Reads ``Authentication-Results`` of the owner's own mail server, to know whether a sender is genuine.

Anybody can write such a header into a mail. Only the topmost one with the configured name of the server
counts: a server adds its own on top, and removes others with its name (RFC 8601).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_HEADER = 20_000  # characters


@dataclass(frozen=True, slots=True)
class AuthResult:
    """The result of one method, such as dkim, with its properties."""

    method: str
    result: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuthResults:
    server: str
    results: tuple[AuthResult, ...] = ()


def read_results(header: str) -> AuthResults:
    """Parse one header. Comments are ignored, and anything malformed proves nothing."""
    parts = _without_comments(header[:MAX_HEADER]).split(";")
    name = parts[0].split()
    return AuthResults(
        name[0].lower() if name else "",
        tuple(result for part in parts[1:] if (result := _result(part)) is not None),
    )


def _without_comments(text: str) -> str:
    if "(" not in text and '"' not in text:
        return text
    depth, kept, quoted = 0, [], False
    for sign in text:
        if sign == '"' and not depth:
            quoted = not quoted
        elif sign == "(" and not quoted:
            depth += 1
        elif sign == ")" and not quoted:
            depth = max(0, depth - 1)
        elif not depth and not (quoted and sign in ";="):
            kept.append(sign)
    return "".join(kept)


def _result(part: str) -> AuthResult | None:
    words = part.replace(" =", "=").replace("= ", "=").split()
    if not words or "=" not in words[0]:
        return None
    method, _, result = words[0].partition("=")
    pairs = (word.partition("=") for word in words[1:] if "=" in word)
    properties = {name.lower(): value.lower() for name, _, value in pairs}
    return AuthResult(method.partition("/")[0].lower(), result.lower(), properties)


def is_genuine(headers: Sequence[str], servers: Sequence[str], domain: str) -> bool:
    """Return whether the trusted server says that the mail is really of this domain.

    ``headers`` are all Authentication-Results of the mail, the topmost first.
    """
    trusted = {server.lower() for server in servers}
    found = next((one for one in map(read_results, headers) if one.server in trusted), None)
    if found is None or not domain:
        return False
    if any(one.method == "dmarc" and one.result == "fail" for one in found.results):
        return False
    return any(_proves(one, domain.lower()) for one in found.results)


def _proves(one: AuthResult, domain: str) -> bool:
    if one.result != "pass":
        return False
    match one.method:
        case "dmarc":
            return one.properties.get("header.from", "") == domain
        case "dkim":
            signed = one.properties.get("header.d") or _domain(one.properties.get("header.i", ""))
            return _aligned(domain, signed)
        case "spf":
            return _aligned(domain, _domain(one.properties.get("smtp.mailfrom", "")))
    return False


def _domain(address: str) -> str:
    return address.rpartition("@")[2]


def _aligned(domain: str, proven: str) -> bool:
    return "." in proven and (domain == proven or domain.endswith(f".{proven}"))
