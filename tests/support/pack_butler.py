"""A house with a registry: packs are written, registered, changed, and used by sessions that think."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.domain.ids import uuid7
from butlers.domain.redaction import SecretText
from butlers.domain.session import SessionRequest, SessionResult
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret
from butlers.secrets.vault import Vault
from butlers.skills.registry.registry import NewSkill, SkillRegistry
from butlers.wire.client import McpClient
from support.fake_runtime import Asked, Thinker, nothing
from support.in_process import House, request_context
from support.skills import write_pack, write_skill_md

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


@dataclass
class Bureau:
    house: House
    sources: Path

    @property
    def registry(self) -> SkillRegistry:
        return SkillRegistry(self.house.home)

    @property
    def butler(self) -> Butler:
        return self.house.butler

    async def start(self) -> Butler:
        return await self.house.start()

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
        known = name in self.registry.catalogue().skills
        (self.registry.update if known else self.registry.register)(NewSkill(folder))
        return self.registry.path(name, version)

    def tamper(self, name: str, file: str, version: str = "1.0.0") -> None:
        """One byte more."""
        path = self.house.home / "skills" / "custom" / f"{name}@{version}" / file
        path.chmod(0o644)
        path.write_bytes(path.read_bytes() + b"\n")

    def own(self, name: str, description: str = "Does it.", body: str = "\nDo it.\n") -> Path:
        """A skill of the butler's own folder."""
        folder = self.house.directory / "skills" / name
        return write_skill_md(folder, f"name: {name}\ndescription: {description}\n", body)

    async def secret(self, name: str, value: str) -> None:
        """Kept for this butler, as its owner does it."""
        house = self.house
        database = house.config().db.name
        vault = Vault(house.provisioner, MasterKey.load(Settings(house.home)), {"tester": database})
        await vault.put([NewSecret("tester", name, SecretText(value))])

    @asynccontextmanager
    async def session(self) -> AsyncIterator[McpClient]:
        async with self.house.session() as client:
            yield client

    async def think(
        self,
        thought: Callable[[McpClient], Awaitable[str]] = nothing,
        source: str = "trigger",
        **changes: Any,
    ) -> tuple[Asked, SessionResult]:
        """One session on the real road; what its runtime was given, and what came of it."""
        self.butler.spawner.model = model = Thinker(thought)
        session = SessionRequest(uuid7(), "think", source)
        if source == "route":
            request = replace(request_context(), request_id=uuid7())
            session = replace(session, request=request, request_id=request.request_id)
        result = await self.butler.spawner.run(replace(session, **changes))
        return model.asked[0], result

    async def status(self) -> dict[str, Any]:
        async with self.house.owner() as owner:
            found: dict[str, Any] = await owner.call("status")
            return found


MakeBureau = Callable[..., Bureau]
