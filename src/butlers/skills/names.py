"""What skills, versions and variables may be called."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePosixPath

MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_PATH = 512

# Starts with a letter, words joined by single hyphens: a butler's folder, and every skill we write.
KEBAB = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
# The same, but a digit may come first: an id in a manifest.
ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
VERSION = re.compile(r"(?:0|[1-9]\d{0,8})\.(?:0|[1-9]\d{0,8})\.(?:0|[1-9]\d{0,8})", re.ASCII)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.:-]{0,99}")


def is_kebab(name: str) -> bool:
    return len(name) <= MAX_NAME and KEBAB.fullmatch(name) is not None


def is_id(name: str) -> bool:
    return len(name) <= MAX_NAME and ID.fullmatch(name) is not None


def is_version(version: str) -> bool:
    return VERSION.fullmatch(version) is not None


def slug(name: str) -> str | None:
    """The nearest name that is allowed, to propose it."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    while words and not words[0][0].isalpha():
        words.pop(0)
    return "-".join(words)[:MAX_NAME].rstrip("-") or None


def inner_path(written: str) -> str | None:
    """A relative path that stays below its root, tidied; None for any other."""
    if not written or len(written) > MAX_PATH or "\\" in written or not written.isprintable():
        return None
    path = PurePosixPath(written)
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
        return None
    return str(path)
