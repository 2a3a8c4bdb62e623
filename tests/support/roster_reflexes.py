"""Every example of a butler's reflexes, called on the running butler and undone."""

from __future__ import annotations

from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from butlers.skills.reflexes import ReflexBook, ReflexMatch, load_reflexes
from support.roster_butler import RosterButler
from support.tester_folder import ROSTER


@cache
def _book(butler: str) -> ReflexBook:
    return load_reflexes(ROSTER / butler / "skills")


async def stored_rows(butler: RosterButler) -> str:
    """Return a digest of all record tables, without the times of their last changes."""
    tables = [row["name"] for row in await butler.rows("SELECT name FROM record_tables ORDER BY 1")]
    parts = " || ".join(
        f"(SELECT coalesce(string_agg((to_jsonb(record) - 'updated_at')::text, '' ORDER BY id), '')"
        f" FROM {table} AS record)"
        for table in tables
    )
    (row,) = await butler.rows(f"SELECT md5({parts}) AS digest")
    return str(row["digest"])


async def say(butler: RosterButler, text: str) -> tuple[ReflexMatch, str]:
    """Do what the message's reflex says; return the match and the reply."""
    book = _book(butler.butler.butler.config.name)
    match = book.match(text, butler.now, ZoneInfo(butler.butler.butler.config.timezone))
    assert match is not None, f"no reflex for {text!r}"
    assert match.tool is not None
    result: Any = await butler.call(match.tool, **match.arguments)
    return match, match.reply(result)


async def undo_after_each_example(butler: RosterButler) -> int:
    """Try every example; after one that changed something, undo must restore everything."""
    book = _book(butler.butler.butler.config.name)
    changing, before = 0, await stored_rows(butler)
    for reflex in book.reflexes:
        for example in reflex.examples:
            match, reply = await say(butler, example)
            assert match.reflex.name == reflex.name, f"{example!r} is taken by {match.reflex.name}"
            assert reply, example
            assert "?" not in reply, f"{example!r}: {reply!r}"
            if await stored_rows(butler) != before:
                changing += 1
                await butler.undo()
                assert await stored_rows(butler) == before, f"undo after {example!r}"
    return changing
