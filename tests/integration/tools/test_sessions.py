"""The session tools: list and show."""

from __future__ import annotations

from uuid import UUID

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import NotFound
from support.in_process import InProcessButler


async def test_session_is_listed_and_shown_with_its_calls(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        done = await owner.call("trigger", {"prompt": "keep the spare key"})
        assert done["success"] is True
        listed = (await owner.call("sessions_list", {"limit": 5}))["sessions"]
        assert [session["id"] for session in listed] == [done["session_id"]]
        shown = await owner.call("sessions_get", {"id": done["session_id"]})
    assert (shown["prompt"], shown["outcome"], shown["runtime"]) == (
        "keep the spare key",
        "ok",
        "reflex",
    )
    assert [(call["tool"], call["arguments"], call["ok"]) for call in shown["tool_calls"]] == [
        ("write", {"text": "the spare key"}, True)
    ]
    assert UUID(shown["id"]) == UUID(done["session_id"])


async def test_unknown_session_is_not_found(tester: InProcessButler) -> None:
    async with tester.owner() as owner:
        with pytest.raises(NotFound, match="there is no session"):
            await owner.call("sessions_get", {"id": str(uuid7())})
