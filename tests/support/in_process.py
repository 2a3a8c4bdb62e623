"""A real butler in the test's own process: its folder, its packs, and clients that speak to it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.provision import Provisioner
from butlers.domain.caller import CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext
from butlers.domain.redaction import SecretText
from butlers.domain.session import SessionRequest, SessionResult
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret
from butlers.secrets.vault import Vault
from butlers.skills.registry.new_skill import NewSkill
from butlers.skills.registry.registry import SkillRegistry
from butlers.wire.client import META, PROTOCOL, McpClient
from butlers.wire.tokens import FleetKey
from support.fake_runtime import FakeRuntime, RuntimeCall, nothing
from support.messages import request_context
from support.skills import write_pack, write_skill_md
from support.waiting import PATIENCE_S, until


@dataclass
class InProcessButler:
    """A butler in the test's process: its folder, its home, and the ways to call it."""

    directory: Path
    home: Path
    key: FleetKey
    provisioner: Provisioner
    versions: Path | None = None  # None: the shipped ones
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
        own = (type(module).__module__ for module in (butler or self.butler).modules)
        return sys.modules[next(name for name in own if not name.startswith("butlers.modules."))]

    def open_gate(self, butler: Butler | None = None) -> None:
        """Let the slow tools go on, where there are any."""
        chosen = butler or self.butler
        kinds = [type(one).__module__ for one in getattr(chosen, "modules", ())]
        own = [name for name in kinds if not name.startswith("butlers.modules.")]
        if own and (gate := getattr(self.bench(chosen), "gate", None)):
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

    # -- its packs -----------------------------------------------------------------------------

    @property
    def sources(self) -> Path:
        """Folder in which packs are written before they are registered."""
        return self.directory.parent / "sources"

    @property
    def registry(self) -> SkillRegistry:
        return SkillRegistry(self.home)

    def register(
        self, name: str, files: dict[str, str | bytes] | None = None, /, **fields: Any
    ) -> Path:
        """A pack in the registry; says where its files lie."""
        version = fields.pop("version", "1.0.0")
        given = {"owner": "me", "name": name.replace("-", " ").title(), **fields}
        if given.get("envVars"):
            files = {**(files or {}), ".env.example": "# see the manual\n"}
        folder = self.sources / version / name
        write_pack(folder, files or {}, id=name, version=version, **given)
        known = name in self.registry.catalog().skills
        (self.registry.update if known else self.registry.register)(NewSkill(folder))
        return self.registry.path(name, version)

    def tamper(self, name: str, file: str, version: str = "1.0.0") -> None:
        """One byte more."""
        path = self.home / "skills" / "custom" / f"{name}@{version}" / file
        path.chmod(0o644)
        path.write_bytes(path.read_bytes() + b"\n")

    def own(self, name: str, description: str = "Does it.", body: str = "\nDo it.\n") -> Path:
        """A skill of the butler's own folder."""
        folder = self.directory / "skills" / name
        return write_skill_md(folder, f"name: {name}\ndescription: {description}\n", body)

    async def secret(self, name: str, value: str) -> None:
        """Kept for this butler, as its owner does it."""
        config = self.config()
        databases = {config.name: config.db.name}
        vault = Vault(self.provisioner, MasterKey.load(Settings(self.home)), databases)
        await vault.put([NewSecret(config.name, name, SecretText(value))])

    async def think(
        self,
        thought: Callable[[McpClient], Awaitable[str]] = nothing,
        source: str = "trigger",
        **changes: Any,
    ) -> tuple[RuntimeCall, SessionResult]:
        """One session on the real road; what its runtime was given, and what came of it."""
        self.butler.spawner.model = model = FakeRuntime(thought)
        session = SessionRequest(uuid7(), "think", source)
        if source == "route":
            request = replace(request_context(), request_id=uuid7())
            session = replace(session, request=request, request_id=request.request_id)
        session = replace(session, **changes)
        result = await self.butler.spawner.run(session)
        # A message that was routed before may get its session on the same model, at the same time.
        own = [asked for asked in model.asked if str(session.session_id) in asked.server.url]
        return own[0], result

    async def status(self) -> dict[str, Any]:
        async with self.owner() as owner:
            found: dict[str, Any] = await owner.call("status")
            return found


MakeButler = Callable[..., InProcessButler]


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
