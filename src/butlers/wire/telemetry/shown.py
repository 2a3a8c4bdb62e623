"""What of a value may be shown in a span: scrubbed of secrets first, then cut to a length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from butlers.domain.redaction import redactor

SHOWN = 4_000  # characters of one attribute

Scrub = Callable[[Any], Any]

_scrub: Scrub = redactor.scrub_data


def set_scrubber(scrub: Scrub) -> None:
    """Replace what masks secrets in everything that leaves in a span."""
    global _scrub
    _scrub = scrub


def shown_text(text: str) -> str:
    """Cut after it was scrubbed: half a secret would not be known for one. What is no Unicode is
    escaped: a single such text would cost the whole batch it is sent with."""
    return _cut(_sendable(str(_scrub(text))))


def shown_value(name: str, value: Any) -> dict[str, str | int]:
    """A structured value as attributes: its JSON, its size, and a digest that tells whether two are the
    same. The digest is of what may be shown: one of a short secret would give it away."""
    text = _sendable(json.dumps(_scrub(value), ensure_ascii=False, default=str))
    raw = text.encode()
    return {
        name: _cut(text),
        f"{name}.bytes": len(raw),
        f"{name}.sha256": hashlib.sha256(raw).hexdigest(),
    }


def _cut(text: str) -> str:
    more = len(text) - SHOWN
    return f"{text[:SHOWN]}… ({more:,} more characters)" if more > 0 else text


def _sendable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
