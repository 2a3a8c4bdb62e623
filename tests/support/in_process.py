"""A house for one real butler: its folder, its tools, its migrations, and clients that speak to it."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import httpx

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.migrations import shipped_versions
from butlers.db.provision import Provisioner
from butlers.domain.caller import CallerKind
from butlers.domain.ids import uuid7
from butlers.domain.request import RequestContext
from butlers.domain.session import SessionRequest
from butlers.wire.client import META, PROTOCOL, McpClient
from butlers.wire.tokens import FleetKey

ROSTER = Path(__file__).resolve().parents[2] / "roster"
PATIENCE_S = 60.0
SECRET = "the owner's secret is 4711"
T = TypeVar("T")

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


class Bench(Module):
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


async def until(what: str, condition: Callable[[], T | Awaitable[T | None] | None]) -> T:
    """Wait for a condition, not for seconds; the limit only ends a test that hangs."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = condition()
        found = await answer if isinstance(answer, Awaitable) else answer
        if found:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited in vain for: {what}")


@dataclass
class House:
    """Where one butler lives, and how a test reaches it."""

    directory: Path
    home: Path
    key: FleetKey
    provisioner: Provisioner
    versions: Path
    butlers: list[Butler] = field(default_factory=list)

    # -- the butler --------------------------------------------------------------------------

    def config(self) -> ButlerConfig:
        return load_butler_config(self.directory, Settings(self.home))

    def make(self, **options: Any) -> Butler:
        given: dict[str, Any] = {
            "settings": Settings(self.home),
            "key": self.key,
            "provisioner": self.provisioner,
            "versions": self.versions,
        }
        butler = Butler(self.config(), **{**given, **options})
        self.butlers.append(butler)
        return butler

    async def start(self) -> Butler:
        butler = self.make()
        await butler.start()
        return butler

    async def close(self) -> None:
        for butler in self.butlers:
            self.open_gate(butler)
            await butler.stop()

    @property
    def butler(self) -> Butler:
        return self.butlers[-1]

    def bench(self, butler: Butler | None = None) -> ModuleType:
        """The module of the butler's own tools: its gate, and who waits there."""
        (module,) = (butler or self.butler).modules
        return sys.modules[type(module).__module__]

    def open_gate(self, butler: Butler | None = None) -> None:
        """Let the slow tools go on, where there are any."""
        chosen = butler or self.butler
        if getattr(chosen, "modules", None) and (gate := getattr(self.bench(chosen), "gate", None)):
            gate.set()

    async def until_running(self, *labels: str) -> None:
        await until(
            f"{labels} to run", lambda: sorted(self.bench().running) == sorted(labels) or None
        )

    # -- clients -----------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return int(httpx.URL(self.butler.url).port or 0)

    def token(
        self, kind: CallerKind, name: str = "owner", *, audience: str | None = None, **more: Any
    ) -> str:
        return self.key.mint(kind, name, audience or self.butler.config.name, **more)

    @property
    def owner_token(self) -> str:
        return self.token(CallerKind.OWNER)

    def client(self, token: str) -> McpClient:
        return McpClient(self.butler.config.name, self.butler.url, lambda: token)

    def owner(self) -> McpClient:
        return self.client(self.owner_token)

    def peer(self, name: str) -> McpClient:
        return self.client(self.token(CallerKind.PEER, name))

    @asynccontextmanager
    async def session(
        self, request_id: UUID | None = None, request: RequestContext | None = None
    ) -> AsyncIterator[McpClient]:
        """A client with the token of a live session; the same request id is a second run of it."""
        asked = SessionRequest(
            session_id=uuid7(),
            prompt="test",
            trigger_source="test",
            request=request,
            request_id=request.request_id if request else request_id,
        )
        with self.butler.guard.admit(asked) as token:
            async with self.client(token) as client:
                yield client

    async def post(self, body: Any, token: str, **headers: str) -> httpx.Response:
        """One raw POST of protocol 2026-07-28; ``body`` may be bytes that no client would write."""
        method = json.loads(body)["method"] if isinstance(body, bytes) else body["method"]
        named = {"Mcp-Name": headers.pop("name")} if "name" in headers else {}
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE_S) as http:
            return await http.post(
                self.butler.url,
                content=body if isinstance(body, bytes) else json.dumps(body).encode(),
                headers={
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/json",
                    "Accept": "application/json, text/event-stream",
                    "MCP-Protocol-Version": PROTOCOL,
                    "Mcp-Method": method,
                    **named,
                    **headers,
                },
            )

    async def call_raw(self, tool: str, arguments: Any, token: str) -> dict[str, Any]:
        """A call whose arguments are put on the wire exactly as ``json.dumps`` escapes them."""
        answer = await self.post(call_body(tool, arguments), token, name=tool)
        found: dict[str, Any] = answer.json()
        return found

    # -- what is really in the tables ----------------------------------------------------------

    async def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
        """Read by the administrator, on a connection of its own."""
        place = self.butler.config.db
        connection = await asyncpg.connect(
            **{**self.provisioner.admin.arguments("tests"), "database": place.name}
        )
        try:
            await connection.execute(f'SET search_path = "{place.schema or "public"}"')
            return [dict(row) for row in await connection.fetch(sql, *arguments)]
        finally:
            await connection.close()

    async def count(self, table: str) -> int:
        (row,) = await self.rows(f"SELECT count(*) AS n FROM {table}")
        return int(row["n"])


MakeHouse = Callable[..., House]


def call_body(tool: str, arguments: Any) -> dict[str, Any]:
    meta = {
        f"{META}/protocolVersion": PROTOCOL,
        f"{META}/clientInfo": {"name": "tests", "version": "1"},
        f"{META}/clientCapabilities": {},
    }
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta},
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


def request_context(text: str = "test") -> RequestContext:
    return RequestContext(
        request_id=uuid7(),
        received_at=datetime.now(UTC),
        source_channel="console",
        source_endpoint_identity="console:owner",
        source_sender_identity="owner",
        source_thread_identity=text,
        sender_roles=("owner",),
    )


def envelope(text: str = "weight 80.4 kg", **changes: Any) -> dict[str, Any]:
    """A good message; ``changes`` replaces whole parts, or fields of them where they are mappings."""
    good: dict[str, Any] = {
        "schema_version": "ingest.v1",
        "source": {
            "channel": "console",
            "provider": "console",
            "endpoint_identity": "console:owner",
        },
        "event": {
            "external_event_id": secrets.token_hex(8),
            "observed_at": datetime.now(UTC).isoformat(),
        },
        "sender": {"identity": "owner"},
        "payload": {"normalized_text": text},
    }
    for part, change in changes.items():
        known = good.get(part)
        good[part] = (
            {**known, **change}
            if isinstance(known, dict) and isinstance(change, Mapping)
            else change
        )
    return good
