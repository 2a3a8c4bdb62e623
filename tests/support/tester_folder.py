"""Folder of the test butler: its tools, reflexes, migration, and scripts for its packs."""

from __future__ import annotations

import shutil
from pathlib import Path

from butlers.db.migrations import shipped_versions

ROSTER = Path(__file__).resolve().parents[2] / "roster"
SECRET = "the owner's secret is 4711"

TOOLS = '''
"""Tools for tests: quick, slow, writing, failing and crashing ones."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field

from butlers.domain.errors import NotFound
from butlers.sdk import EVERYONE, SESSIONS, CallContext, Effect, Module, tool

gate = asyncio.Event()  # what slow tools wait for
running: list[str] = []  # the labels of those that wait


@tool(callers=EVERYONE, effect=Effect.READ)
async def quick(ctx: CallContext, text: str = "hello") -> dict[str, Any]:
    """Say it back, and who asked."""
    return {"text": text, "caller": str(ctx.caller.kind), "name": ctx.caller.name}


@tool(callers=EVERYONE, effect=Effect.LONG)
async def slow(ctx: CallContext, label: str) -> dict[str, Any]:
    """Wait until the gate opens."""
    await _wait(label)
    return {"label": label}


@tool(callers=SESSIONS)
async def slow_write(ctx: CallContext, label: str) -> dict[str, Any]:
    """Write, then wait until the gate opens, inside the transaction."""
    await _insert(ctx, label)
    await _wait(label)
    return {"label": label}


@tool(callers=SESSIONS)
async def write(ctx: CallContext, text: str) -> dict[str, Any]:
    """Write one row."""
    return {"number": await _insert(ctx, text), "text": text}


@tool(callers=SESSIONS)
async def write_null(ctx: CallContext, text: str) -> None:
    """Write one row and answer nothing."""
    await _insert(ctx, text)


@tool(callers=SESSIONS)
async def write_nested(ctx: CallContext, text: str) -> dict[str, Any]:
    """Write one row and answer with a deep thing."""
    return {"number": await _insert(ctx, text), "deep": {"list": [1, None, {"é": "\\u2028"}], "no": None}}


@tool(callers=SESSIONS)
async def write_list(ctx: CallContext, text: str) -> list[Any]:
    """Write one row and answer with a list."""
    return [await _insert(ctx, text), text]


@tool(callers=SESSIONS)
async def write_and_fail(ctx: CallContext, text: str) -> dict[str, Any]:
    """Write one row, then find that it was wrong."""
    await _insert(ctx, text)
    raise NotFound("there is no such shelf", hint="try another shelf")


@tool(callers=SESSIONS)
async def write_when_open(ctx: CallContext, text: str) -> dict[str, Any]:
    """Write one row, if the gate is open by then."""
    number = await _insert(ctx, text)
    if not gate.is_set():
        raise NotFound("the gate is closed", hint="try again when it is open")
    return {"number": number}


@tool(callers=SESSIONS)
async def write_and_crash(ctx: CallContext, text: str) -> dict[str, Any]:
    """Write one row, then fall over."""
    await _insert(ctx, text)
    secret = SECRET
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise ZeroDivisionError(secret) from error


@tool(callers=SESSIONS)
async def write_too_much(ctx: CallContext, number: int) -> None:
    """Write a number that no column holds."""
    await ctx.connection.execute("SELECT $1::int", number)


@tool(callers=EVERYONE, effect=Effect.READ)
async def typed(
    ctx: CallContext, count: Annotated[int, Field(ge=1, le=9)], names: list[str] | None = None
) -> dict[str, Any]:
    """Take a small number."""
    return {"count": count, "names": names}


@tool(callers=EVERYONE, effect=Effect.READ)
async def say(ctx: CallContext, text: str, times: int = 1) -> dict[str, Any]:
    """Say it, more than once if asked to."""
    return {"text": text * times}


async def _insert(ctx: CallContext, text: str) -> int:
    return await ctx.connection.fetchval("INSERT INTO entries (text) VALUES ($1) RETURNING number", text)


async def _wait(label: str) -> None:
    running.append(label)
    try:
        await gate.wait()
    finally:
        running.remove(label)


class TesterTools(Module):
    name = "bench"
    tools = (quick, slow, slow_write, write, write_null, write_nested, write_list, write_and_fail,
             write_when_open, write_and_crash, write_too_much, typed, say)
'''.replace("SECRET", repr(SECRET))

MIGRATION = """
from alembic import op

revision = "tester_001"
down_revision = None


def upgrade() -> None:
    op.execute("CREATE TABLE entries (number bigserial PRIMARY KEY, text text NOT NULL)")
"""

REFLEXES = r"""
version = 1

[[reflex]]
name = "keep"
pattern = '(?i)keep (?P<text>.+)'
tool = "write"
reply = "Kept: {text} as number {result.number}."
arguments = { text = "{text}" }

[[reflex]]
name = "lose"
pattern = '(?i)lose (?P<text>.+)'
tool = "write_and_fail"
reply = "Never said."
arguments = { text = "{text}" }

[[reflex]]
name = "break"
pattern = '(?i)break (?P<text>.+)'
tool = "write_and_crash"
reply = "Never said."
arguments = { text = "{text}" }

[[reflex]]
name = "wait"
pattern = '(?i)wait for (?P<label>.+)'
tool = "slow"
reply = "Waited for {result.label}."
arguments = { label = "{label}" }

[[reflex]]
name = "shout"
pattern = '(?i)shout (?P<text>\S+) (?P<times>\d+)'
tool = "say"
reply = "{result.text}"
groups = { times = "integer" }
arguments = { text = "{text}", times = "{times}" }

[[reflex]]
name = "ping"
pattern = '(?i)ping'
reply = "pong"
"""

ENVIRONMENT_PY = """
# Tells its environment.
import json, os
print(json.dumps({"success": True, "result": dict(os.environ)}))
"""
ECHO_PY = '''"""Say it back."""
import json, sys
print(json.dumps({"success": True, "result": {"said": json.loads(sys.argv[1])}}))
'''
SERVER_PY = '''"""An MCP server with one tool, which leaves a mark while it runs."""
import json, os, sys

TOOLS = [{"name": "post_tweet", "description": "Post a tweet.", "inputSchema": {
    "type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}}]


def answer(request):
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "social", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        said = params["arguments"]["content"]
        if said == "crash":
            os._exit(3)
        if said == "fail":
            return {"content": [{"type": "text", "text": "no such network"}], "isError": True}
        told = {"said": said, "pid": os.getpid(), "environment": dict(os.environ)}
        return {"content": [{"type": "text", "text": json.dumps(told)}]}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)
'''
LOCAL_SERVER = {
    "name": "social-mcp",
    "type": "local",
    "command": "python",
    "args": ["mcp/server.py"],
}


def write_tester(directory: Path, database: str, *, extra: str = "", tools: str = TOOLS) -> None:
    """The folder of a butler with tools and reflexes made for tests."""
    (directory / "modules").mkdir(parents=True)
    (directory / "modules" / "__init__.py").write_text(tools)
    (directory / "skills" / "bench").mkdir(parents=True)
    (directory / "skills" / "bench" / "reflex.toml").write_text(REFLEXES)
    (directory / "butler.toml").write_text(
        '[butler]\nname = "tester"\nport = 0\ndescription = "A butler for tests."\n'
        f'db.name = "{database}"\n{extra}\n[modules.bench]\n'
    )


def write_versions(versions: Path) -> None:
    """The shipped chains, and one more for the butler of the tests."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(shipped_versions(), versions, ignore=ignored)
    (versions / "tester").mkdir()
    (versions / "tester" / "tester_001_entries.py").write_text(MIGRATION)


def copy_roster(name: str, directory: Path, database: str) -> None:
    """A shipped butler on any free port, in a database of its own."""
    shutil.copytree(ROSTER / name, directory, ignore=shutil.ignore_patterns("__pycache__"))
    file = directory / "butler.toml"
    lines = [
        "port = 0"
        if line.startswith("port")
        else f'name = "{database}"'
        if line == 'name = "butlers"'
        else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(lines))
