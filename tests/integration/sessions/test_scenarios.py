"""Sessions of every trigger: their input, their record, and their configuration."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from butlers.config.settings import Settings
from butlers.domain.clock import uuid7
from butlers.domain.session import Access, Outcome, SessionRequest, ToolCall, Usage
from butlers.process.runner import TimeLimits
from butlers.runtimes.base import Grants, McpServer, Terms, Workspace
from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.gemini import GeminiAdapter
from butlers.wire.client import McpClient
from support.fake_runtime import FakeRuntime
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context
from support.recorded import FOLDER
from support.waiting import until

HEALTH = "You are the Health butler. You track daily health metrics."
ADAPTERS = {"claude-code": ClaudeCodeAdapter, "codex": CodexAdapter, "gemini": GeminiAdapter}
KEYS = {"claude-code": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
PROGRAMS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini"}


def asked(source: str = "trigger", prompt: str = "think") -> SessionRequest:
    if source != "route":
        return SessionRequest(uuid7(), prompt, source)
    request = replace(request_context(), request_id=uuid7())
    return SessionRequest(uuid7(), prompt, source, request, request.request_id)


def write_program(folder: Path, runtime: str) -> Path:
    """A program that says what the pinned CLI has said in a session with two turns.

    It holds the words itself: in its sandbox it reads no other file of ours.
    """
    file = folder / PROGRAMS[runtime]
    said = (FOLDER / runtime / "two-turns.jsonl").read_text()
    file.write_text(f"#!/bin/sh\n/bin/cat >/dev/null\n/bin/cat <<'END OF IT'\n{said}\nEND OF IT\n")
    file.chmod(0o755)
    return file


@pytest.mark.scenario("S000-03")
async def test_the_system_prompt_of_a_session_is_the_file_and_no_more(
    tester: InProcessButler,
) -> None:
    (tester.directory / "CLAUDE.md").write_text(HEALTH)
    tester.butler.spawner.model = model = FakeRuntime()
    await tester.butler.spawner.run(asked())
    assert model.asked[0].system_prompt == HEALTH


@pytest.mark.scenario("S001-46")
async def test_the_system_prompt_is_the_file_what_is_remembered_and_nothing_else(
    tester: InProcessButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tester.directory / "CLAUDE.md").write_text(HEALTH)
    for other in ("AGENTS.md", "MANIFESTO.md", "GEMINI.md", "CLAUDE.local.md", "skills/SKILL.md"):
        (tester.directory / other).write_text("PERIWINKLE")
    tester.butler.spawner.model = model = FakeRuntime()
    await tester.butler.spawner.run(asked())
    (module,) = tester.butler.modules

    async def remember(session: SessionRequest) -> str:
        return f"# Memory\n- asked to {session.prompt}"

    monkeypatch.setattr(module, "session_context", remember)
    await tester.butler.spawner.run(asked())
    without, with_memory = (given.system_prompt for given in model.asked)
    assert without == HEALTH
    assert with_memory == f"{HEALTH}\n\n# Memory\n- asked to think"


@pytest.mark.scenario("S001-03")
@pytest.mark.parametrize("source", ["trigger", "route", "schedule:daily"])
async def test_every_trigger_is_bound_to_its_butler_and_logged(
    make_butler: MakeButler, source: str
) -> None:
    tester = make_butler(extra='[butler.runtime]\nmodel = "claude-sonnet-4-5"\n')
    spawner = (await tester.start()).spawner
    (tester.directory / "CLAUDE.md").write_text(HEALTH)

    async def think(butler: McpClient) -> str:
        await butler.call("write", {"text": "milk"})
        return "It is written."

    spawner.model = model = FakeRuntime(think, usage=Usage(1_000, 100, 0))
    session = asked(source, "write milk")
    result = await spawner.run(session)
    (given,) = model.asked
    assert given.server.url == f"{tester.butler.url}?runtime_session_id={session.session_id}"
    assert given.env["MCP_SERVERS"].count('"url"') == 1, "one server, and no other"
    assert tester.butler.url in given.env["MCP_SERVERS"]
    assert given.system_prompt == HEALTH
    assert result.outcome is Outcome.OK
    assert tester.butler.guard.count == 0, "it has ended, and its token with it"
    async with tester.owner() as owner:
        kept = await owner.call("sessions_get", {"id": str(session.session_id)})
    assert (kept["prompt"], kept["output"]) == ("write milk", "It is written.")
    assert (kept["success"], kept["error"]) == (True, None)
    assert (kept["input_tokens"], kept["output_tokens"]) == (1_000, 100)
    assert float(kept["cost_usd"]) == pytest.approx(0.0045)
    assert [(call["tool"], call["arguments"]) for call in kept["tool_calls"]] == [
        ("write", {"text": "milk"})
    ]
    assert kept["duration_ms"] >= 0
    assert len(kept["trace_id"]) == 32
    assert kept["trigger_source"] == source


async def test_withheld_access_is_recorded(tester: InProcessButler) -> None:
    tester.butler.spawner.model = FakeRuntime(withheld="it does not run in its folder")
    session = asked()
    await tester.butler.spawner.run(session)
    (row,) = await tester.rows("SELECT access, sealed_because FROM sessions")
    assert (row["access"], row["sealed_because"]) == (
        "workspace",
        "it does not run in its folder",
    )


@pytest.mark.scenario("S001-31")
@pytest.mark.parametrize("runtime", ADAPTERS)
async def test_an_adapter_returns_the_text_the_calls_and_the_usage(
    tmp_path: Path, runtime: str
) -> None:
    adapter = ADAPTERS[runtime](write_program(tmp_path, runtime))
    private = tmp_path / "private"
    terms = Terms(Workspace(tmp_path, private), Grants(Access.SEALED), TimeLimits(), "m")
    butler = "tester" if runtime == "claude-code" else "health"  # as it was recorded
    servers = {butler: McpServer("http://127.0.0.1:1/mcp", "bs.token")}
    env = {"PATH": "/usr/bin:/bin", KEYS[runtime]: "a-key"}
    result = await adapter.invoke("Do it.", HEALTH, servers, env, terms)
    assert result.ok
    assert result.text
    assert len(result.tool_calls) >= 2
    assert all(isinstance(call, ToolCall) and call.ok for call in result.tool_calls)
    assert result.usage.input_tokens
    assert result.usage.output_tokens


@pytest.mark.scenario("S001-37")
@pytest.mark.parametrize("runtime", ADAPTERS)
async def test_the_configuration_chooses_adapter_model_and_how_many_at_once(
    make_butler: MakeButler, tmp_path: Path, runtime: str
) -> None:
    for name in ADAPTERS:
        write_program(tmp_path, name)
    tester = make_butler(
        extra=f'[runtime]\ntype = "{runtime}"\n'
        '[butler.runtime]\nmodel = "the-model"\nmax_concurrent_sessions = 2\n'
    )
    environ = {"PATH": str(tmp_path), KEYS[runtime]: "a-key"}
    butler = tester.make(settings=Settings(tester.home, environ=MappingProxyType(environ)))
    await butler.start()
    assert type(butler.spawner.model) is ADAPTERS[runtime]
    gate, at_once, most = asyncio.Event(), 0, 0

    async def think(client: McpClient) -> str:
        nonlocal at_once, most
        await client.list_tools()
        at_once += 1
        most = max(most, at_once)
        await gate.wait()
        at_once -= 1
        return "done"

    butler.spawner.model = model = FakeRuntime(think)
    running: list[Any] = [asyncio.create_task(butler.spawner.run(asked())) for _ in range(4)]
    try:
        await until(
            "two to think and two to wait", lambda: at_once == 2 and butler.spawner._queued == 2
        )
    finally:
        gate.set()
    await asyncio.gather(*running)
    assert most == 2
    assert {given.terms.model for given in model.asked} == {"the-model"}
