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
# The same, but may start with a digit: the standard's rule for a name.
ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# Characters of a pack's id: hyphens may be doubled, or stand at its ends.
_PACK_ID = re.compile(r"[a-z0-9-]+")
_NUMBER = r"(?:0|[1-9]\d{0,8})"
_WORDS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_WORDS})?(?:\+{_WORDS})?", re.ASCII)
MAX_VERSION = 64
# A version as people write it: `v1`, `1.0`, `2024.01.15`, `1.2.3.4`, `1.0-beta`.
_LOOSE = re.compile(
    r"[vV]?\s*(?P<numbers>\d{1,9}(?:\.\d{1,9}){0,5})(?:[-_]?(?P<pre>[A-Za-z][0-9A-Za-z.-]*))?"
    r"(?:\+(?P<build>[0-9A-Za-z.-]+))?",
    re.ASCII,
)
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.:-]{0,99}")

# Variables that Butlers sets, or that decide which code runs: no skill gets them.
_RESERVED = frozenset(
    {"PATH", "HOME", "TMPDIR", "LANG", "TRACEPARENT", "ENV", "BASH_ENV", "NODE_OPTIONS"}
)
_RESERVED_PREFIXES = ("BUTLERS_", "DATABASE_URL", "MCP_SERVERS", "LD_", "DYLD_", "PYTHON")

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
    """Return True for a pack's id: lower-case letters, digits and hyphens, but not hyphens alone."""
    return len(name) <= MAX_NAME and _PACK_ID.fullmatch(name) is not None and bool(name.strip("-"))


def is_version(version: str) -> bool:
    """Return True for a semantic version, also of a pre-release or with build metadata."""
    if len(version) > MAX_VERSION or VERSION.fullmatch(version) is None:
        return False
    words = version.partition("+")[0].partition("-")[2].split(".")
    return not any(word.isdigit() and word[0] == "0" and len(word) > 1 for word in words)


def lenient_version(written: str) -> str | None:
    """Return the semantic version that the text means, or None: `1.0` is 1.0.0, `v2` is 2.0.0."""
    text = written.strip()[: MAX_VERSION + 1]
    if is_version(text):
        return text
    found = _LOOSE.fullmatch(text)
    if found is None:
        return None
    numbers = [str(int(number)) for number in found["numbers"].split(".")]
    core, more = ".".join([*numbers, "0", "0"][:3]), ".".join(numbers[3:])
    build = ".".join(part for part in (more, found["build"]) if part)
    version = core + (f"-{found['pre']}" if found["pre"] else "") + (f"+{build}" if build else "")
    return version if is_version(version) else None


def is_reserved_variable(name: str) -> bool:
    return name in _RESERVED or name.startswith(_RESERVED_PREFIXES)


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
