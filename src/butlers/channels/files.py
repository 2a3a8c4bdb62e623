"""Names of files that other people send."""

from __future__ import annotations

import unicodedata

from butlers.domain.json_safe import text_safe

MAX_FILENAME = 150


def clean_filename(name: str) -> str | None:
    """Return the last part of a file name without control and direction characters, or None."""
    last = text_safe(name[-1000:]).replace("\\", "/").rpartition("/")[2]
    shown = "".join(sign for sign in last if unicodedata.category(sign) not in ("Cc", "Cf", "Cs"))
    return " ".join(shown.split())[-MAX_FILENAME:].lstrip(".") or None
