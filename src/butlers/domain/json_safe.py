"""Rules for data: strict reading, read-only dicts, and text and JSON that are safe to store."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from butlers.domain.redaction import MASK, redactor

# Read by pydantic wherever a type with this ``__pydantic_config__`` is validated: unknown keys are errors.
STRICT = {"extra": "forbid"}

MAX_DEPTH = 100  # levels of JSON from outside; storing more would exceed the recursion limit
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
LONGEST_TEXT = 4_000  # characters of one argument
LONGEST_SECRET = 70_000
LONGEST = 64_000  # characters of all arguments together
# Names of arguments whose values are masked.
SENSITIVE = re.compile(
    r"(?i)(^|[_-])(pass(word|phrase|wd)?s?|(secret|private|api)[_-]?keys?|secrets?|token|bearer|otp|pin"
    r"|credentials?|authorization)$"
)


def parse_json(text: bytes | str) -> Any:
    """Parse JSON from outside. Raise ValueError if it is invalid or nested deeper than MAX_DEPTH."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for outer in level for item in _items(outer)]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def text_safe(text: str) -> str:
    """Escape NUL and lone surrogates, which PostgreSQL and UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def json_safe(arguments: dict[str, Any], sensitive: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Prepare a tool call's arguments for the audit log: secrets masked, long texts cut, valid JSON.

    ``sensitive`` names the arguments that the tool's module declared as sensitive.
    """
    shown = {name: MASK if name in sensitive else value for name, value in arguments.items()}
    safe: dict[str, Any] = _clean(shown)
    size = len(json.dumps(safe, ensure_ascii=False))
    return safe if size <= LONGEST else {"not kept": f"{size:,} characters of arguments"}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        # Scrub more than is kept, so that a secret is not cut in two before it is found.
        text = text_safe(redactor.scrub(value[: LONGEST_TEXT + LONGEST_SECRET])[:LONGEST_TEXT])
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


class FrozenDict(dict[str, Any]):
    """A read-only dict. It stays a dict, so that json and pydantic accept it."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("configuration is read-only")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        # The inherited method fills an empty dict item by item, which this class refuses.
        return FrozenDict, (dict(self),)


def freeze(value: Any) -> Any:
    """Return the value with every dict and list in it made immutable."""
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value
