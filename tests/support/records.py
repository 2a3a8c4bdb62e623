"""A domain butler under test: messages to it without a model, its records, and its tool schemas."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext
from butlers.domain.session import SessionRequest, SessionResult
from butlers.skills.reflexes import Reflex, load_reflexes
from support.in_process import InProcessButler
from support.messages import request_context

MAX_TOOLS, MAX_SCHEMA_TOKENS = 25, 3500
CHARACTERS_PER_TOKEN = 4


def strangers(name: str = "bob") -> RequestContext:
    """A request of another person."""
    return replace(request_context(), source_sender_identity=name, sender_roles=())


async def say(butler: InProcessButler, text: str, *, at: datetime | None = None) -> SessionResult:
    """Send one message of the owner to the butler and return the session that answers it."""
    request = request_context()
    if at is not None:
        request = replace(request, received_at=at)
    return await butler.butler.spawner.run(
        SessionRequest(
            session_id=uuid7(),
            prompt=text,
            trigger_source="route",
            request=request,
            request_id=request.request_id,
        )
    )


async def records_of(butler: InProcessButler) -> dict[str, list[dict[str, Any]]]:
    """Return all records by table, without the time of their last change."""
    tables = [
        row["name"] for row in await butler.rows("SELECT name FROM record_tables ORDER BY name")
    ]
    parts = " UNION ALL ".join(
        f"SELECT '{table}' AS name, to_jsonb(r) - 'updated_at' AS row FROM \"{table}\" AS r"
        for table in tables
    )
    found: dict[str, list[dict[str, Any]]] = {table: [] for table in tables}
    for row in await butler.rows(f"SELECT * FROM ({parts}) AS rows ORDER BY name, row ->> 'id'"):
        found[row["name"]].append(json.loads(row["row"]))
    return found


def reflexes_of(butler: InProcessButler) -> tuple[Reflex, ...]:
    """Return the butler's reflexes; a problem in a file fails the test."""
    book = load_reflexes(butler.directory / "skills")
    assert not book.diagnostics, [f"{d.entry}: {d.message}" for d in book.diagnostics]
    return book.reflexes


async def check_reflex_examples(butler: InProcessButler) -> None:
    """Say every example: it is answered by its own reflex, and undo restores every record."""
    for reflex in reflexes_of(butler):
        assert len(reflex.examples) >= 5, reflex.name
        assert len(reflex.not_examples) >= 3, reflex.name
        for example in reflex.examples:
            await _check_example(butler, reflex, example)


async def _check_example(butler: InProcessButler, reflex: Reflex, example: str) -> None:
    before = await records_of(butler)
    result = await say(butler, example)
    assert result.ok, f"{reflex.name}: {example!r}: {result.text}"
    tools = [call.tool for call in result.tool_calls]
    assert tools == [*([reflex.tool] if reflex.tool else []), "notify"], (reflex.name, example)
    assert "?" not in result.text.replace("?”", "") or reflex.tool is None, (example, result.text)
    if await records_of(butler) != before:
        async with butler.owner() as owner:
            await owner.call("undo", {})
        assert await records_of(butler) == before, f"{reflex.name}: undo after {example!r}"


async def tool_budget(butler: InProcessButler, module: str) -> tuple[int, int]:
    """Return the number of the module's tools, and the tokens of their schemas for a session."""
    (found,) = [m for m in butler.butler.modules if m.name == module]
    names = {function.__tool__.name for function in found.tools}  # type: ignore[attr-defined]
    async with butler.session(request=request_context()) as session:
        tools = [tool for tool in await session.list_tools() if tool["name"] in names]
    characters = sum(
        len(json.dumps([t["name"], t.get("description"), t["inputSchema"]], separators=(",", ":")))
        for t in tools
    )
    return len(names), characters // CHARACTERS_PER_TOKEN
