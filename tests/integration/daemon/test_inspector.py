"""The MCP Inspector's command line as another client of the same URL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from butlers.domain.caller import CallerKind
from support.in_process import InProcessButler, MakeButler
from support.programs import Ended, Programs

ROADS = {
    "streamable, 2025": ("--transport", "http", "--protocol-era", "legacy"),
    "streamable, 2026": ("--transport", "http", "--protocol-era", "modern"),
    "sse": ("--transport", "sse"),
}
NOT_AUTHENTICATED = 3  # the Inspector's exit code


class Inspector:
    def __init__(self, programs: Programs, tester: InProcessButler, *options: str) -> None:
        self._programs = programs
        self._house = tester
        self._options = options

    async def ask(self, *arguments: str, token: str | None = None) -> Ended:
        return await self._programs.run(
            *("inspector", "--cli", self._house.butler.url, "--quiet", "--format", "json"),
            *("--header", f"Authorization: Bearer {token or self._house.owner_token}"),
            *self._options,
            *arguments,
        )

    async def result(self, *arguments: str) -> dict[str, Any]:
        ended = await self.ask(*arguments)
        assert ended.code == 0, ended.errors
        found: dict[str, Any] = json.loads(ended.output)["result"]
        return found

    async def names(self) -> set[str]:
        return {tool["name"] for tool in (await self.result("--method", "tools/list"))["tools"]}

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        given = ("--tool-args-json", json.dumps(arguments)) if arguments else ()
        result = await self.result("--method", "tools/call", "--tool-name", tool, *given)
        assert not result.get("isError"), result
        found: dict[str, Any] = result["structuredContent"]
        return found


@pytest.mark.parametrize("road", ROADS)
async def test_inspector_lists_and_calls_tools(
    tester: InProcessButler, mcp_programs: Programs, road: str
) -> None:
    inspector = Inspector(mcp_programs, tester, *ROADS[road])

    assert {"status", "state_get", "state_set", "quick"} <= await inspector.names()
    assert (await inspector.call("status"))["name"] == "tester"
    assert await inspector.call("state_set", key="tea", value={"sorts": ["grün", 2]}) == {
        "version": 1
    }
    kept = await inspector.call("state_get", key="tea")
    assert kept["value"] == {"sorts": ["grün", 2]}


@pytest.mark.parametrize("road", ROADS)
async def test_inspector_shows_that_a_token_is_wrong(
    tester: InProcessButler, mcp_programs: Programs, road: str
) -> None:
    inspector = Inspector(mcp_programs, tester, *ROADS[road])
    another = tester.token(CallerKind.OWNER, audience="health")

    ended = await inspector.ask("--method", "tools/list", token=another)

    assert json.loads(ended.errors)["error"]["code"] == "auth_required"
    assert (ended.code, ended.output) == (NOT_AUTHENTICATED, "")


@pytest.mark.parametrize("name", ["switchboard", "messenger", "general", "health"])
async def test_tool_schemas_pass_the_strict_inspector(
    make_butler: MakeButler, mcp_programs: Programs, name: str
) -> None:
    tester = make_butler(name)
    await tester.start()

    result = await Inspector(mcp_programs, tester).result("--method", "tools/list", "--strict")

    assert "status" in {tool["name"] for tool in result["tools"]}
