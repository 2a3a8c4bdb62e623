"""A session that has read what others may have written changes neither the soul nor the skills."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from butlers.domain.errors import ButlersError, NotAllowed
from butlers.wire.client import McpClient
from integration.daemon.house import request_context
from integration.serving.bureau import ECHO_PY, LOCAL_SERVER, SERVER_PY, Bureau
from integration.serving.conftest import MakeBureau

DRAFT = {"id": "a-draft", "description": "Does it.", "instructions": "How."}
READING = {
    "a script's answer": ("skill_run", {"skill": "report", "script": "say"}),
    "a script that fails": ("skill_run", {"skill": "report", "script": "gone"}),
    "another's server": ("report_post_tweet", {"content": "hello"}),
    "a file": ("get_attachment", {"storage_ref": "blob:none"}),
}


@pytest.fixture
async def bureau(make_bureau: MakeBureau) -> Bureau:
    made = make_bureau("report@1.0.0", skills="allow_soul_edit = true")
    files: dict[str, str | bytes] = {"scripts/say.py": ECHO_PY, "mcp/server.py": SERVER_PY}
    made.register("report", files, scripts=["scripts/say.py"], mcpServers=[LOCAL_SERVER])
    (made.house.directory / "skills" / "custom").mkdir(parents=True, exist_ok=True)
    await made.start()
    return made


async def change_itself(session: McpClient) -> None:
    await session.call("soul_edit", {"text": "Bold."})
    await session.call("soul_undo")
    await session.call("skill_create", DRAFT)


@pytest.mark.parametrize(("tool", "arguments"), READING.values(), ids=READING)
async def test_after_reading_it_changes_nothing_of_what_its_butler_is(
    bureau: Bureau, tool: str, arguments: dict[str, Any]
) -> None:
    async with bureau.house.session(request=request_context()) as session:
        with suppress(ButlersError):  # what an error says may be theirs as well
            await session.call(tool, arguments)
        for name, given in (
            ("soul_edit", {"text": "Bold."}),
            ("soul_undo", {}),
            ("skill_create", DRAFT),
        ):
            with pytest.raises(NotAllowed, match=f"may have written .{tool}.") as refused:
                await session.call(name, given)
            assert refused.value.hint == "ask the owner, with notify, to have it done"
    assert "a-draft" not in bureau.registry.catalogue().skills
    async with bureau.house.session(request=request_context()) as session:
        await change_itself(session)


async def test_reading_its_own_skills_is_no_reading_of_others(bureau: Bureau) -> None:
    async with bureau.house.session(request=request_context()) as session:
        await session.call("skill_list")
        await session.call("skill_open", {"skill": "report"})
        await change_itself(session)
