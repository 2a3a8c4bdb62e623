"""A model that knows a secret says it wherever it can; nothing keeps or shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.errors import ButlersError, NotAllowed
from butlers.domain.redaction import MASK, redactor
from butlers.domain.session import SessionRequest, SessionResult, ToolCall
from butlers.runtimes.base import McpServer, Terms
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler

PLANTED = "planted-secret-of-the-owner"


@dataclass
class TalkativeRuntime(FakeRuntime):
    """Reports a call of the CLI's own tools, as the real ones do."""

    async def invoke(
        self,
        prompt: str,
        system_prompt: str,
        mcp_servers: Mapping[str, McpServer],
        env: Mapping[str, str],
        terms: Terms,
    ) -> SessionResult:
        ended = await super().invoke(prompt, system_prompt, mcp_servers, env, terms)
        said = {"command": f"echo {PLANTED}", "deep": [{PLANTED: PLANTED}]}
        call = ToolCall(f"Bash {PLANTED}", said, ok=True, result=PLANTED, of_cli=True)
        return replace(ended, tool_calls=(call,))


async def test_secret_in_the_name_of_a_refused_tool_is_masked(tester: InProcessButler) -> None:
    """Attack: call a tool that is named like a secret, so that the log of calls keeps it in clear."""
    redactor.register(PLANTED)
    asked = SessionRequest(uuid7(), "test", "test", request_id=uuid7())
    with tester.butler.guard.admit(asked) as token:
        for name in (PLANTED, "x" * 190 + PLANTED, "trigger"):
            answer = await tester.call_raw(name, {PLANTED: PLANTED}, token)
            assert answer["result"]["structuredContent"]["error"]["code"]
            assert PLANTED not in json.dumps(answer)
    rows = await tester.rows("SELECT * FROM tool_calls ORDER BY id")
    assert [row["tool"] for row in rows] == [MASK, ("x" * 190 + MASK)[:200], "trigger"]
    assert PLANTED not in json.dumps(rows, default=str)
    assert PLANTED[:10] not in json.dumps(rows, default=str)


async def test_answer_of_trigger_shows_no_secret(tester: InProcessButler) -> None:
    """Attack: the model says a secret in its answer and in its own calls, which `trigger --json` prints."""
    redactor.register(PLANTED)

    async def think(butler: McpClient) -> str:
        with pytest.raises(ButlersError):
            await butler.call("write_and_fail", {"text": PLANTED})
        return f"it is {PLANTED}"

    tester.butler.spawner.model = TalkativeRuntime(think)
    async with tester.owner() as owner:
        ended = await owner.call("trigger", {"prompt": f"what is {PLANTED}?"})
    assert ended["output"] == f"it is {MASK}"
    (call,) = ended["tool_calls"]
    assert call["tool"] == f"Bash {MASK}"
    assert call["arguments"] == {"command": f"echo {MASK}", "deep": [{MASK: MASK}]}
    assert PLANTED not in json.dumps(ended)


async def test_sessions_are_read_by_the_owner_alone(tester: InProcessButler) -> None:
    """Attack: a peer, the Switchboard or a session reads prompts and answers of another's session."""
    async with tester.owner() as owner:
        tester.butler.spawner.model = FakeRuntime()
        ended = await owner.call("trigger", {"prompt": "private"})
        await owner.call("sessions_get", {"id": ended["session_id"]})
    async with (
        tester.peer("general") as peer,
        tester.peer("switchboard") as switchboard,
        tester.session() as session,
    ):
        for client in (peer, switchboard, session):
            for tool, arguments in (
                ("sessions_list", {}),
                ("sessions_get", {"id": ended["session_id"]}),
                ("sessions_stop", {}),
            ):
                with pytest.raises(NotAllowed):
                    await client.call(tool, arguments)
