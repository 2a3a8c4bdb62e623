"""The fake model, asked as the CLIs ask it: a wrong fake would prove nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from support.fake_model import Call, Fail, FakeModel, Hang, Say, Use, fake_model, in_prompt

TOOLS = ("mcp__tester__slow_write", "mcp__tester__write", "mcp__tester__quick")


@pytest.fixture
async def model() -> AsyncIterator[FakeModel]:
    async with fake_model() as made:
        yield made


async def post(model: FakeModel, path: str, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client:
        return await client.post(model.url + path, json=body)


async def ask(model: FakeModel, *results: str, text: str = "go") -> Any:
    """By the Messages API, without a stream; the content of the answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
    for result in results:
        block = {
            "type": "tool_result",
            "tool_use_id": "x",
            "content": [{"type": "text", "text": result}],
        }
        messages.append({"role": "user", "content": [block]})
    tools = [{"name": name} for name in TOOLS]
    answer = await post(model, "/v1/messages", {"model": "m", "messages": messages, "tools": tools})
    return answer.json()["content"] if answer.status_code == 200 else answer.status_code


async def test_it_follows_its_script(model: FakeModel) -> None:
    both = Use(Call("write", {"text": "b"}), Call("quick"))
    model.script = [Use("write", text="a"), both, Say("Done.")]
    (first,) = await ask(model)
    assert (first["name"], first["input"]) == ("mcp__tester__write", {"text": "a"})
    assert [block["name"] for block in await ask(model, "1")] == [
        "mcp__tester__write",
        "mcp__tester__quick",
    ]
    assert await ask(model, "1", "2", "3") == [{"type": "text", "text": "Done."}]
    assert model.turns[-1].results == ("1", "2", "3")


async def test_a_script_in_the_prompt_goes_before(model: FakeModel) -> None:
    steps = (Use(Call("quick", {"text": "]]"}, anyway=True)), Fail(418), Say("x"), Hang())
    (block,) = await ask(model, text=f"do [[script:[broken {in_prompt(*steps)} now")
    assert (block["name"], block["input"]) == ("mcp__tester__quick", {"text": "]]"})
    assert await ask(model, "1", text=in_prompt(*steps)) == 418


async def test_a_tool_that_is_not_on_offer(model: FakeModel) -> None:
    model.script = [Use("missing")]
    (said,) = await ask(model)
    assert said["text"].startswith("TOOL_NOT_OFFERED missing")
    model.script = [Use(Call("Bash", anyway=True))]
    assert (await ask(model))[0]["name"] == "Bash"


async def test_it_fails_as_often_as_it_is_to(model: FakeModel) -> None:
    model.script = [Fail(529, times=2), Say("Done.")]
    assert [await ask(model), await ask(model)] == [529, 529]
    assert (await ask(model))[0]["text"] == "Done."


async def test_it_hangs_until_it_is_released(model: FakeModel) -> None:
    model.script = [Hang()]
    waiting = asyncio.create_task(ask(model))
    async with asyncio.timeout(60):
        while not model.hanging:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert not waiting.done()
    model.release()
    assert (await waiting)[0]["text"] == "Released."


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "go"}], "tools": [{"name": "x_write"}]},
        ),
        ("/v1/responses", {"input": "go", "tools": [{"type": "function", "name": "x_write"}]}),
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": "go"}],
                "tools": [{"function": {"name": "x_write"}}],
            },
        ),
        (
            "/v1beta/models/m:streamGenerateContent",
            {
                "contents": [{"parts": [{"text": "go"}]}],
                "tools": [{"functionDeclarations": [{"name": "x_write"}]}],
            },
        ),
    ],
)
async def test_every_api_streams_the_same_call(
    model: FakeModel, path: str, body: dict[str, Any]
) -> None:
    model.script = [Use("write", text="milk")]
    answer = await post(model, path, {"model": "m", "stream": True, **body})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    assert all(isinstance(json.loads(event), dict) for event in events)
    assert "x_write" in answer.text
    assert "milk" in answer.text
    (turn,) = model.turns
    assert (turn.user, turn.offered, turn.model) == ("go", ("x_write",), "m")
