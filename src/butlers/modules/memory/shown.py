"""Items as tools return them: text, dates and source. Reading outside items taints the session."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import asyncpg

from butlers.modules.memory.items import FADING, ItemKind, effective_confidence
from butlers.modules.memory.search.engine import Hit
from butlers.tools.context import CallContext
from butlers.tools.records import shown_source


def shown_item(ctx: CallContext, kind: ItemKind, row: asyncpg.Record) -> dict[str, Any]:
    """Return an item for a list: what it says, since when, and who said it if not the owner."""
    common = {"id": str(row["id"]), "kind": str(kind), "date": _day(row["observed_at"])}
    return {**common, **_SHOWN[kind](row, ctx.now), **shown_source(ctx, row)}


def shown_hit(ctx: CallContext, hit: Hit, *, explain: bool) -> dict[str, Any]:
    item = shown_item(ctx, hit.kind, hit.row)
    if explain:
        item["score"] = round(hit.score, 3)
        ordered = sorted(hit.parts.items(), key=lambda part: -abs(part[1]))
        item["why"] = {name: round(value, 3) for name, value in ordered if abs(value) >= 0.005}
    return item


def shown_details(ctx: CallContext, kind: ItemKind, row: asyncpg.Record) -> dict[str, Any]:
    """Return an item with its full provenance."""
    return {
        **shown_item(ctx, kind, row),
        "provenance": {
            "butler": row["butler"],
            "sender": row["sender"],
            "trust": row["trust"],
            "request_id": str(row["request_id"]) if row["request_id"] else None,
            "session_id": str(row["session_id"]) if row["session_id"] else None,
            "observed_at": row["observed_at"].isoformat(),
        },
    }


def _episode(row: asyncpg.Record, now: datetime) -> dict[str, Any]:
    return {"speaker": row["speaker"], "content": row["content"]}


def _fact(row: asyncpg.Record, now: datetime) -> dict[str, Any]:
    left = effective_confidence(row["confidence"], row["permanence"], row["last_confirmed_at"], now)
    shown = {
        "subject": row["subject"],
        "predicate": row["predicate"],
        "content": row["content"],
        "confidence": round(left, 2),
    }
    if row["qualifier"]:
        shown["qualifier"] = row["qualifier"]
    if row["validity"] != "active":
        shown["validity"] = row["validity"]
    elif left < FADING:
        shown["validity"] = "fading"
    if row["valid_from"]:
        shown["valid_from"] = _day(row["valid_from"])
    if row["valid_to"]:
        shown["valid_to"] = _day(row["valid_to"])
    return shown


def _rule(row: asyncpg.Record, now: datetime) -> dict[str, Any]:
    return {"content": row["content"], "maturity": row["maturity"], "scope": row["scope"]}


def shown_entity(ctx: CallContext, row: asyncpg.Record) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["canonical_name"],
        "type": row["entity_type"],
        "aliases": row["aliases"],
        "metadata": row["metadata"],
        "is_owner": row["is_owner"],
        **shown_source(ctx, row),
    }


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


_SHOWN = {ItemKind.EPISODE: _episode, ItemKind.FACT: _fact, ItemKind.RULE: _rule}
