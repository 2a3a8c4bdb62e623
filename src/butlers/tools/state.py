"""A butler's own small memory: JSON values by key."""

from __future__ import annotations

import json
import unicodedata
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.caller import SESSIONS
from butlers.domain.errors import InvalidArguments
from butlers.tools import state_store as state
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext
from butlers.tools.state_store import StateEntry

MAX_VALUE_BYTES = 1_000_000
RESERVED = "module:"  # the daemon's own switches

Key = Annotated[str, Field(min_length=1, max_length=200)]
Version = Annotated[int, Field(ge=0)]


@tool(callers=SESSIONS, effect=Effect.READ)
async def state_get(ctx: CallContext, key: Key) -> dict[str, Any] | None:
    """The value kept under a key, with its version; null when there is none."""
    found = await state.get(ctx.connection, _checked(key))
    return _shown(found) if found else None


@tool(callers=SESSIONS)
async def state_set(
    ctx: CallContext, key: Key, value: Any, expected_version: Version | None = None
) -> dict[str, Any]:
    """Keep a JSON value under a key and return its new version.

    With expected_version it is kept only if the value still has that version (0: only if there is none);
    otherwise nothing changes and the error says what is there now.
    """
    if _is_reserved(key):
        raise InvalidArguments(f"keys that begin with {RESERVED!r} are the butler's own")
    size = len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > MAX_VALUE_BYTES:
        raise InvalidArguments(
            f"the value has {size:,} bytes; at most {MAX_VALUE_BYTES:,} are kept",
            hint="keep the large part elsewhere and a reference to it here",
        )
    return {"version": await state.put(ctx.connection, _checked(key), value, expected_version)}


@tool(callers=SESSIONS)
async def state_delete(
    ctx: CallContext, key: Key, expected_version: Version | None = None
) -> dict[str, Any]:
    """Forget the value under a key; says whether there was one."""
    if _is_reserved(key):
        raise InvalidArguments(f"keys that begin with {RESERVED!r} are the butler's own")
    return {"deleted": await state.remove(ctx.connection, _checked(key), expected_version)}


@tool(callers=SESSIONS, effect=Effect.READ)
async def state_list(
    ctx: CallContext,
    prefix: Annotated[str, Field(max_length=200)] = "",
    keys_only: bool = True,
    after: Annotated[str, Field(max_length=200)] = "",
    limit: Annotated[int, Field(ge=1, le=1000)] = 200,
) -> dict[str, Any]:
    """Keys in order, optionally only those with a prefix. For the next page pass the last key as after."""
    found = await state.entries(ctx.connection, prefix, after, limit)
    if keys_only:
        return {"keys": [entry.key for entry in found]}
    return {"entries": [_shown(entry) for entry in found]}


def _shown(entry: StateEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "value": entry.value,
        "version": entry.version,
        "updated_at": entry.updated_at.isoformat(),
    }


def _is_reserved(key: str) -> bool:
    return key.startswith(RESERVED)


def _checked(key: str) -> str:
    for position, character in enumerate(key):
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidArguments(
                f"the key has a control character at position {position}",
                hint="use printable characters",
            )
    return key


TOOLS = (state_get, state_set, state_delete, state_list)
