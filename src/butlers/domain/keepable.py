"""Arguments as the audit keeps them: without secrets, not too long, and never what stops the audit."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from butlers.domain.redaction import MASK, redactor

LONGEST_TEXT = 4_000  # characters of one argument
LONGEST_SECRET = 70_000
LONGEST = 64_000  # characters of all of them
# Whatever stands under such a name is nobody's business afterwards.
SENSITIVE = re.compile(
    r"(?i)(^|[_-])(pass(word|phrase|wd)?s?|(secret|private|api)[_-]?keys?|secrets?|token|bearer|otp|pin"
    r"|credentials?|authorization)$"
)


def keepable(arguments: dict[str, Any], sensitive: frozenset[str] = frozenset()) -> dict[str, Any]:
    """``sensitive``: those that the tool's module has declared so."""
    shown = {name: MASK if name in sensitive else value for name, value in arguments.items()}
    kept: dict[str, Any] = _clean(shown)
    size = len(json.dumps(kept, ensure_ascii=False))
    return kept if size <= LONGEST else {"not kept": f"{size:,} characters of arguments"}


def storable(text: str) -> str:
    """NUL and lone surrogates, which no text column holds, as they are written in Python."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        # A little more than is kept is searched, so that a secret is not cut in two before it is found.
        text = storable(redactor.scrub(value[: LONGEST_TEXT + LONGEST_SECRET])[:LONGEST_TEXT])
        cut = len(value) - LONGEST_TEXT
        return f"{text}… ({cut:,} more characters)" if cut > 0 else text
    if isinstance(value, dict):
        return {_clean(str(key)): _under(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _under(name: str, value: Any) -> Any:
    return MASK if value is not None and SENSITIVE.search(name) else _clean(value)
