"""Naming rules: skills, versions, variables, paths inside a skill, and script languages."""

from __future__ import annotations

import re
import unicodedata
from itertools import dropwhile
from pathlib import PurePosixPath

MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_PATH = 512

# Words joined by single hyphens, starting with a letter: skill folders, and every skill we write.
KEBAB = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
# The same, but may start with a digit: an id in a manifest.
ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
VERSION = re.compile(r"(?:0|[1-9]\d{0,8})\.(?:0|[1-9]\d{0,8})\.(?:0|[1-9]\d{0,8})", re.ASCII)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.:-]{0,99}")

_LANGUAGES = {
    ".py": "py",
    ".sh": "sh",
    ".bash": "sh",
    ".ts": "js",
    ".js": "js",
    ".mjs": "js",
    ".cjs": "js",
    ".mts": "js",
}


def is_kebab(name: str) -> bool:
    return len(name) <= MAX_NAME and KEBAB.fullmatch(name) is not None


def is_id(name: str) -> bool:
    return len(name) <= MAX_NAME and ID.fullmatch(name) is not None


def is_version(version: str) -> bool:
    return VERSION.fullmatch(version) is not None


def slug(name: str) -> str | None:
    """Return the closest valid name, or None if no letter is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = dropwhile(lambda word: word[0].isdigit(), re.findall(r"[a-z0-9]+", plain))
    return "-".join(words)[:MAX_NAME].rstrip("-") or None


def inner_path(written: str) -> str | None:
    """Return the normalized relative path, or None if it could leave the folder."""
    if not written or len(written) > MAX_PATH or "\\" in written or not written.isprintable():
        return None
    path = PurePosixPath(written)
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
        return None
    return str(path)


def script_language(path: str) -> str | None:
    """Return py, sh or js by the file's suffix; None if the file is no script."""
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return _LANGUAGES.get(f"{dot}{suffix.lower()}") if stem else None
