"""Redaction: mask known secrets, and text that looks like one, in logs, audit rows and errors.

This is the second line of defense; the first is not to write secrets anywhere. Code that reads a secret
registers it here. A registered value is also found in its encoded forms: base64 (also inside a longer text),
URL-encoded, and escaped in JSON.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote_from_bytes

MASK = "[redacted]"
SHORTEST = 4  # shorter values would mask too much text
SHORTEST_LINE = 16  # shorter lines of a multi-line value are not masked by themselves
SHORTEST_CORE = 8  # characters of base64 that do not depend on the bytes around the value
DEEPEST = 100

# Each pattern with a text that every match contains: looking for that is far cheaper than matching. The
# group named "s" is masked, or else the whole match. Each pattern takes linear time.
PATTERNS = tuple(
    (part, re.compile(pattern, re.ASCII))
    for part, pattern in (
        ("sk-", r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}"),  # Anthropic, OpenAI
        ("gh", r"(?<![A-Za-z0-9])gh[opusr]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{20,}"),
        ("xox", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("AIza", r"AIza[A-Za-z0-9_-]{30,}"),
        (":AA", r"(?<!\d)\d{6,12}:AA[A-Za-z0-9_-]{20,}"),  # Telegram bot token
        (
            "earer",
            r"[Bb]earer\s+(?P<s>[A-Za-z0-9._~+/=-]{20,}"
            r"|(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{8,})",
        ),
        (
            "BEARER",
            r"BEARER\s+(?P<s>[A-Za-z0-9._~+/=-]{20,}"
            r"|(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{8,})",
        ),
        (
            "uthorization",
            r"[Aa]uthorization[\"']?\s*[:=]\s*[\"']?(?:[Bb]asic|[Tt]oken)\s+(?P<s>[^\s\"',;}]+)",
        ),
        # scheme://user:PASSWORD@host
        ("://", r"(?<=://)[^\s:/@\"'<>]*:(?P<s>[^\s@/\"'<>]+)@"),
        # A fleet token (wire.tokens) and a session token (sessions.guard).
        ("b1.", r"(?<![A-Za-z0-9])b1\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}"),
        ("bs.", r"(?<![A-Za-z0-9])bs\.[A-Za-z0-9_-]{40,}"),
        # JSON Web Token. The lookahead finds its three parts first: a start in the middle of a part would
        # read the rest of that part for every "-eyJ" in it.
        (
            "eyJ",
            r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]++\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8})"
            r"(?:[A-Za-z0-9_-]*?[_-])??"
            r"(?P<s>eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+)",
        ),
        ("-----BEGIN ", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<s>[^-]*)"),
    )
)


class SecretText(str):
    """A secret as text. Its ``repr`` is masked."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


class Redactor:
    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()  # the shortest first
        self._one_writer = threading.Lock()

    def register(self, *values: str | None) -> None:
        """Mask these values from now on. None and values that are too short are ignored."""
        fresh = {str(value) for value in values if value and len(value.strip()) >= SHORTEST}
        if fresh <= self._values:
            return
        with self._one_writer:
            self._values |= fresh
            known = {*self._forms, *(form for value in fresh for form in forms(value))}
            self._forms = tuple(sorted(known, key=len))

    def scrub(self, text: str) -> str:
        """Return the text with its secrets masked, or the same object if it has none."""
        pieces: list[str] = []
        kept_to = 0
        for start, end in sorted(self._spans(text)):
            if start > kept_to or not pieces:
                pieces += [text[kept_to:start], MASK]
            kept_to = max(kept_to, end)
        return "".join([*pieces, text[kept_to:]]) if pieces else text

    def scrub_data(self, value: Any, *, depth: int = 0) -> Any:
        """Return the data with every text in it scrubbed, keys included. Other values stay as they are,
        unless their text would show a secret: then they become scrubbed text."""
        if value is None or isinstance(value, bool):
            return value
        if depth > DEEPEST:
            return "[nested too deeply]"
        match value:
            case SecretText():
                return MASK
            case str():
                return self.scrub(value)
            case int() | float():
                return MASK if str(value) in self._values else value
            case Mapping():
                return {
                    self.scrub_data(key, depth=depth + 1): self.scrub_data(item, depth=depth + 1)
                    for key, item in value.items()
                }
            case list():
                return [self.scrub_data(item, depth=depth + 1) for item in value]
            case tuple():
                return tuple(self.scrub_data(item, depth=depth + 1) for item in value)
            case set() | frozenset():
                return {self.scrub_data(item, depth=depth + 1) for item in value}
            case bytes() | bytearray():
                return self._scrub_shown(value, bytes(value).decode("utf-8", "replace"))
        return self._scrub_shown(value, f"{value!r}\n{value}")

    def _scrub_shown(self, value: Any, shown: str) -> Any:
        return value if self.scrub(shown) == shown else self.scrub(str(value))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        for form in self._forms:
            if len(form) > len(text):
                break
            # In steps of half a length, so that a run of one letter is masked in linear time.
            step = max(1, len(form) // 2)
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + step)
        for part, pattern in PATTERNS:
            if part not in text:
                continue
            group = "s" if "s" in pattern.groupindex else 0
            for found in pattern.finditer(text):
                yield found.span(group)


def forms(value: str) -> set[str]:
    """Return the forms in which a value may be written."""
    raw = value.encode("utf-8", "surrogatepass")
    escaped = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    nested = {json.dumps(text)[1:-1] for text in escaped}  # JSON inside a string of JSON
    quoted = {quote_from_bytes(raw, safe=""), quote_from_bytes(raw)}
    quoted |= {text.replace("%20", "+") for text in quoted}
    quoted |= {re.sub("%..", lambda found: found[0].lower(), text) for text in quoted}
    shown = {repr(str(value))[1:-1], repr(raw)[2:-1]}
    lines = {line.strip() for line in value.splitlines()} if "\n" in value.strip() else set()
    long_lines = {line for line in lines if len(line) >= SHORTEST_LINE}
    plain = {value, value.strip()}
    return plain | escaped | nested | quoted | shown | long_lines | set(_base64_forms(raw))


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the base64 form, and the characters that do not depend on the bytes around the value."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw).decode()
        yield whole
        yield from (text for text in [whole.rstrip("=")] if len(text) >= SHORTEST_CORE)
        for offset in range(3):
            first = -(-8 * offset // 6)
            last = 8 * (offset + len(raw)) // 6
            core = encode(b"\0" * offset + raw).decode()[first:last]
            if len(core) >= SHORTEST_CORE:
                yield core


# One redactor per process: a secret that is read anywhere is masked everywhere.
redactor = Redactor()
