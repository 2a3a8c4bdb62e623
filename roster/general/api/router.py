"""General on the dashboard: to-dos and lists, notes and collections."""

from __future__ import annotations

from butlers.sdk.dashboard import ButlerCalls, Content, Line, Lines, Panel


async def _items(general: ButlerCalls) -> Content | None:
    answer = await general.call("list_show")
    lines = [
        Line(one["title"], note=one["due"] or "", badge=one["list"]) for one in answer["items"]
    ]
    return Lines(lines) if lines else None


async def _notes(general: ButlerCalls) -> Content | None:
    answer = await general.call("note_search")
    lines = [Line(one["text"], badge=", ".join(one["tags"])) for one in answer["notes"]]
    return Lines(lines) if lines else None


async def _collections(general: ButlerCalls) -> Content | None:
    answer = await general.call("collection_list")
    lines = [Line(one["name"], note=f"{one['items']} items") for one in answer["collections"]]
    return Lines(lines) if lines else None


PANELS = (
    Panel("To do and lists", _items, say="add milk to shopping"),
    Panel("Notes", _notes, say="note: the spare key is with Alice"),
    Panel("Collections", _collections),
)
