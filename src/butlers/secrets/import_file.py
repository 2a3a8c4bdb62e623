"""Files of credentials to import: ``env.json`` and ``.env``. Errors name entries, never values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from butlers.domain.errors import ButlersError
from butlers.domain.redaction import SecretText
from butlers.secrets.sealed import InvalidSecret, NewSecret

LARGEST_FILE = 4 * 1024 * 1024

Found = tuple[str, str, Any, str]  # scope, name, value, and the entry or line

_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[^\s=#'"]+)[ \t]*=[ \t]*
    (?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' | (?P<bare>(?!["'])[^\n]*?) )
    [ \t]*(?:(?:^|(?<=[\s"']))\#[^\n]*)?\r?(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_BLANK = re.compile(r"[ \t]*(?:\#[^\n]*)?\r?(?:\n|\Z)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_secrets_file(path: Path, scope: str) -> list[NewSecret]:
    """Return all secrets of the file, or raise one error that names every invalid entry."""
    text = _read(path)
    found = list(
        _from_json(path, text, scope) if _is_json(path, text) else _from_lines(path, text, scope)
    )
    problems: list[str] = []
    new: dict[tuple[str, str], NewSecret] = {}
    for where, name, value, place in found:
        try:
            if not isinstance(value, str):
                raise InvalidSecret("the value is not text: write it in quotes")
            secret = NewSecret(where, name, SecretText(value))
        except ButlersError as error:
            problems.append(f"{place}: {error.message}")
            continue
        if (where, name) in new:
            problems.append(f"{place}: {where}/{name} appears twice")
        new[where, name] = secret
    if problems:
        raise InvalidSecret(
            f"{path}: nothing was imported: {'; '.join(problems)}",
            hint="correct or remove these, and import the file again",
        )
    if not new:
        raise InvalidSecret(f"{path}: the file holds no secret", hint='write {"NAME": "value"}')
    return list(new.values())


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidSecret(
                f"{path} is larger than {LARGEST_FILE:,} bytes",
                hint="import a file that holds nothing but credentials",
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidSecret(
            f"{path} cannot be read: {error.strerror}", hint="name a file that you can read"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidSecret(
            f"{path} is not valid UTF-8 at byte {error.start}", hint="save it as UTF-8"
        ) from None


def _is_json(path: Path, text: str) -> bool:
    return path.suffix == ".json" or text.lstrip().startswith("{")


def _from_json(path: Path, text: str, scope: str) -> Iterator[Found]:
    try:
        document = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidSecret(
            f"{path}{line}: not valid JSON: {what}", hint='write {"NAME": "value"}'
        ) from None
    if not isinstance(document, _Pairs):
        raise InvalidSecret(f"{path}: not a JSON object", hint='write {"NAME": "value"}')
    for number, (name, value) in enumerate(document, start=1):
        if isinstance(value, _Pairs):
            for inner, (nested, inner_value) in enumerate(value, start=1):
                yield name, nested, inner_value, f"entry {number}.{inner}"
        else:
            yield scope, name, value, f"entry {number}"


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with all its keys; a dict would drop the first of two equal keys."""


def _from_lines(path: Path, text: str, scope: str) -> Iterator[Found]:
    at, line = 0, 1
    while at < len(text):
        entry = _BLANK.match(text, at) or _LINE.match(text, at)
        if entry is None:
            raise InvalidSecret(
                f"{path}:{line}: not a line of the form NAME=value",
                hint='put a value with spaces, quotes or several lines in "double quotes"',
            )
        if entry.re is _LINE:
            yield scope, entry["name"], _value(entry), f"line {line}"
        at, line = entry.end(), line + entry[0].count("\n")


def _value(entry: re.Match[str]) -> str:
    if (double := entry["double"]) is not None:
        return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), double)
    if (single := entry["single"]) is not None:
        return single
    return entry["bare"].strip()
