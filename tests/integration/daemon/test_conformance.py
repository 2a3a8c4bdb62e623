"""The MCP conformance suite, complete, against a running butler.

The suite is written for a demo server and asks by name for its tools, prompts and resources. What a butler
can have of them it has here; the rest is listed with what the suite says and why that is right. A scenario
that fails and is not listed, is listed and passes, is new or is gone, fails the test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.bearer_proxy import bearer_proxy
from support.in_process import InProcessButler, MakeButler
from support.programs import Programs

FOLDER = re.compile(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$")
DEMO_TOOLS = '''
"""The demo tools of the conformance suite that a butler can have."""

from __future__ import annotations

from butlers.domain.errors import NotFound
from butlers.sdk import EVERYONE, CallContext, Effect, Module, tool


@tool(callers=EVERYONE, effect=Effect.READ)
async def test_simple_text(ctx: CallContext) -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@tool(callers=EVERYONE, effect=Effect.READ)
async def test_error_handling(ctx: CallContext) -> str:
    """Fail, as the suite expects."""
    raise NotFound("This tool intentionally returns an error for testing")


@tool(callers=EVERYONE, effect=Effect.READ)
async def test_reconnection(ctx: CallContext) -> str:
    """Answer at once; a demo server would end its stream first."""
    return "Reconnection test completed successfully."


class ConformanceTools(Module):
    name = "bench"
    tools = (test_simple_text, test_error_handling, test_reconnection)
'''

PASSED = {
    "dns-rebinding-protection",
    "logging-set-level",
    "ping",
    "prompts-list",
    "resources-list",
    "server-initialize",
    "server-sse-multiple-streams",
    "tools-call-error",
    "tools-call-simple-text",
    "tools-list",
}


class Known(NamedTuple):
    """Expected failure of a scenario, and the reason why it is right."""

    says: str
    why: str


JSON_ONLY = "a butler's tool answers with JSON or text, never with a picture, a sound or a resource"
NO_ROAD_BACK = "a tool speaks to its caller by its result alone: it asks, logs and counts nothing"
NO_RESOURCES = (
    "a butler offers no resources but its skills to its owner, and there is nothing to subscribe to"
)
NO_PROMPTS = "a butler offers no prompts: their list is empty"

NOT_PASSED = {
    "completion-complete": Known("Failed: MCP error -32601", "no prompts, so nothing to complete"),
    "elicitation-sep1034-defaults": Known("Server did not request elicitation", NO_ROAD_BACK),
    "elicitation-sep1330-enums": Known("Server did not request elicitation", NO_ROAD_BACK),
    "json-schema-2020-12": Known(
        "Tool 'json_schema_2020_12_tool' not found",
        "the demo tool wants its $defs back; ours are made flat, so that no client must follow them",
    ),
    "prompts-get-embedded-resource": Known("Failed: MCP error -32602", NO_PROMPTS),
    "prompts-get-simple": Known("Failed: MCP error -32602", NO_PROMPTS),
    "prompts-get-with-args": Known("Failed: MCP error -32602", NO_PROMPTS),
    "prompts-get-with-image": Known("Failed: MCP error -32602", NO_PROMPTS),
    "resources-read-binary": Known("Failed: MCP error -32602", NO_RESOURCES),
    "resources-read-text": Known("Failed: MCP error -32602", NO_RESOURCES),
    "resources-subscribe": Known("Failed: MCP error -32601", NO_RESOURCES),
    "resources-templates-read": Known("Failed: MCP error -32602", NO_RESOURCES),
    "resources-unsubscribe": Known("Failed: MCP error -32601", NO_RESOURCES),
    "server-sse-polling": Known(
        "Server did not send priming event",
        "a recommendation of the protocol that its library follows only with a store of events",
    ),
    "tools-call-audio": Known("No audio content", JSON_ONLY),
    "tools-call-elicitation": Known("Server did not request elicitation", NO_ROAD_BACK),
    "tools-call-embedded-resource": Known("No resource content", JSON_ONLY),
    "tools-call-image": Known("No image content", JSON_ONLY),
    "tools-call-mixed-content": Known("Expected multiple content items", JSON_ONLY),
    "tools-call-sampling": Known("Server did not request sampling", NO_ROAD_BACK),
    "tools-call-with-logging": Known("No log notifications", NO_ROAD_BACK),
    "tools-call-with-progress": Known("No progress notifications", NO_ROAD_BACK),
}


async def test_conformance_suite_finds_only_the_known_failures(
    make_butler: MakeButler, mcp_programs: Programs, tmp_path: Path
) -> None:
    tester = make_butler(tools=DEMO_TOOLS)
    await tester.start()

    found = await run_suite(tester, mcp_programs, tmp_path / "results")

    complaints = {scenario: said for scenario, said in found.items() if said}
    assert sorted(complaints) == sorted(NOT_PASSED), complaints
    assert found.keys() - complaints.keys() == PASSED
    for scenario, known in NOT_PASSED.items():
        assert complaints[scenario].startswith(known.says), scenario


async def run_suite(tester: InProcessButler, programs: Programs, results: Path) -> dict[str, str]:
    """Return the failures of each scenario; an empty text if it passed."""
    async with bearer_proxy(tester.port, tester.owner_token) as port:
        url = f"http://localhost:{port}/mcp"
        ended = await programs.run(
            *("conformance", "server", "--suite", "all"), *("--url", url, "-o", str(results))
        )
    assert "=== SUMMARY ===" in ended.output, ended.output + ended.errors
    return _read(results)


def _read(results: Path) -> dict[str, str]:
    """One folder per scenario, named after it and the time."""
    return {
        FOLDER.sub("", checks.parent.name): "; ".join(_complaints(checks))
        for checks in results.glob("*/checks.json")
    }


def _complaints(checks: Path) -> Iterator[str]:
    for check in json.loads(checks.read_text()):
        if check["status"] not in ("SUCCESS", "INFO"):
            yield check.get("errorMessage") or check["id"]
