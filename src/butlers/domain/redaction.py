"""The second line of defence: known secrets, and text that looks like one, are masked where they would show.

The first line is not to write them anywhere. Whoever takes a secret in registers it here; whatever writes a
log, an audit row or an error asks for the scrubbed text. Each registered value is also found in the forms in
which it travels: base64 (in the middle of something larger, too), URL-encoded, escaped in JSON.
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
SHORTEST = 4  # a shorter value would mask half of every text
SHORTEST_LINE = 16  # of a value with several lines; shorter ones are no secret by themselves
SHORTEST_CORE = 8  # of a base64 text without its neighbours' bits
DEEPEST = 100

# What is masked is the group named "s", else the whole match. Each of them takes linear time.
PATTERNS = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}",  # Anthropic, OpenAI
        r"(?<![A-Za-z0-9])gh[opusr]_[A-Za-z0-9]{20,}",
        r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{20,}",
        r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"AIza[A-Za-z0-9_-]{30,}",
        r"(?<!\d)\d{6,12}:AA[A-Za-z0-9_-]{20,}",  # a Telegram bot
        r"(?:[Bb]earer|BEARER)\s+(?P<s>[A-Za-z0-9._~+/=-]{20,}"
        r"|(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{8,})",
        r"[Aa]uthorization[\"']?\s*[:=]\s*[\"']?(?:[Bb]asic|[Tt]oken)\s+(?P<s>[^\s\"',;}]+)",
        r"(?<=://)[^\s:/@\"'<>]*:(?P<s>[^\s@/\"'<>]+)@",  # scheme://user:PASSWORD@host
        r"(?<![A-Za-z0-9])b1\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}",  # ours: wire.tokens
        r"(?<![A-Za-z0-9])bs\.[A-Za-z0-9_-]{40,}",  # and a session's: sessions.guard
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<s>[^-]*)",
    )
)


class SecretText(str):
    """A secret as text. It is what it says wherever it is used, and hides where it is only shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


class Redactor:
    def __init__(self) -> None:
        self._values: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._one_writer = threading.Lock()

    def register(self, *values: str | None) -> None:
        """From now on these are masked. What is missing or too short to tell apart is passed over."""
        fresh = {str(value) for value in values if value and len(value.strip()) >= SHORTEST}
        if fresh <= self._values:
            return
        with self._one_writer:
            self._values |= fresh
            self._forms = tuple({*self._forms, *(form for value in fresh for form in forms(value))})

    def scrub(self, text: str) -> str:
        """The text without secrets; the very same text when there are none."""
        pieces: list[str] = []
        kept_to = 0
        for start, end in sorted(self._spans(text)):
            if start > kept_to or not pieces:
                pieces += [text[kept_to:start], MASK]
            kept_to = max(kept_to, end)
        return "".join([*pieces, text[kept_to:]]) if pieces else text

    def scrub_data(self, value: Any, *, depth: int = 0) -> Any:
        """The same data with every text in it scrubbed, keys too. What is neither text nor a container
        stays as it is, unless it would show a secret: then it becomes text."""
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
            # Half a length on, so that a run of one letter is masked whole without a look at each of them.
            step = max(1, len(form) // 2)
            start = text.find(form)
            while start >= 0:
                yield start, start + len(form)
                start = text.find(form, start + step)
        for pattern in PATTERNS:
            group = "s" if "s" in pattern.groupindex else 0
            for found in pattern.finditer(text):
                yield found.span(group)


def forms(value: str) -> set[str]:
    """A value as it may be written, each form long enough to be told from other text."""
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
    """Alone, and as the characters that stay the same whatever comes before and after."""
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


# The process's own: what enters anywhere must not leave anywhere.
redactor = Redactor()
