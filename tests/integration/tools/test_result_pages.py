"""Long results reach a session in pages, whatever tool they come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from butlers.domain.errors import ButlersError, NotFound
from butlers.tools.result_pages import LONGEST, PAGE
from butlers.wire.client import McpClient
from support.in_process import InProcessButler

LONG = "zeta " * 30_000


async def all_pages(session: McpClient, first: dict[str, Any]) -> str:
    text, page = first["text"], first
    while "next" in page:
        result = page["next"].split('"')[1]
        page = await session.call("result_page", {"result": result, "page": page["page"] + 1})
        assert len(json.dumps(page)) <= LONGEST + 200
        text += page["text"]
    assert page["page"] == page["pages"]
    return str(text)


async def test_session_reads_a_long_result_page_by_page(tester: InProcessButler) -> None:
    async with tester.session() as session:
        await session.call("state_set", {"key": "long", "value": LONG})
        first = await session.call("state_get", {"key": "long"})
        assert (first["page"], first["pages"], len(first["text"])) == (1, 8, PAGE)
        assert json.loads(await all_pages(session, first))["value"] == LONG
        for arguments in ({"result": "r9", "page": 1}, {"result": "r1", "page": 9}):
            with pytest.raises(NotFound):
                await session.call("result_page", arguments)


async def test_short_results_and_other_callers_are_left_alone(tester: InProcessButler) -> None:
    async with tester.session() as session, tester.owner() as owner:
        await session.call("state_set", {"key": "short", "value": "x" * 30_000})
        assert (await session.call("state_get", {"key": "short"}))["value"] == "x" * 30_000
        await owner.call("state_set", {"key": "long", "value": LONG})
        assert (await owner.call("state_get", {"key": "long"}))["value"] == LONG


async def test_pages_belong_to_their_session(tester: InProcessButler) -> None:
    async with tester.session() as one, tester.session() as other:
        await one.call("state_set", {"key": "long", "value": LONG})
        assert "next" in await one.call("state_get", {"key": "long"})
        with pytest.raises(ButlersError, match="no result"):
            await other.call("result_page", {"result": "r1", "page": 2})
