"""The interface of a role: tools, services, workers, routes, loops, hops and retention of a made-up one."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FunctionType
from typing import Any
from uuid import UUID

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from butlers.daemon import roles
from butlers.daemon.butler import Butler
from butlers.daemon.retention import Retention
from butlers.db.database import Connection
from butlers.domain.caller import OWNER_ONLY
from butlers.domain.clock import uuid7
from butlers.messenger.role import MessengerRole
from butlers.modules.approvals.role import ApprovalsRole
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.scheduling.role import SchedulingRole
from butlers.switchboard.role import SwitchboardRole
from butlers.tools.context import CallContext, Services
from butlers.tools.declaration import Effect, ToolFunction, tool
from butlers.tools.role import Hop, HttpRoute, Loop, QueueWork, Role, RoleParts
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

QUEUE = "greetings"


@dataclass
class Greeter:
    butler: str
    handled: list[Any] = field(default_factory=list)
    loops: int = 0


@tool(callers=OWNER_ONLY, effect=Effect.LOOK)
async def greet(ctx: CallContext) -> dict[str, Any]:
    """Greet in the name of the butler."""
    return {"greeting": f"hello from {ctx.service(Greeter).butler}"}


class GreetingRole(Role):
    async def open(self, parts: RoleParts) -> None:
        self.greeter = Greeter(parts.config.name)

    def tools(self) -> Sequence[ToolFunction]:
        return (greet,)

    def services(self) -> Sequence[object]:
        return (self.greeter,)

    def workers(self) -> Sequence[QueueWork]:
        return (QueueWork(QUEUE, self._handle, 1),)

    def routes(self) -> Sequence[HttpRoute]:
        return (HttpRoute("/greet/{name}", self._answer, ("GET",)),)

    def loops(self) -> Mapping[str, Loop]:
        return {"greetings": self._loop}

    def retention(self) -> Mapping[str, str]:
        return {"greetings": "greeted_at < $1 AND request_id::text <> ALL($2)"}

    async def request_hops(self, connection: Connection, request_id: UUID) -> list[Hop]:
        return [{"hop": "greeted", "at": datetime.now(UTC), "request_id": str(request_id)}]

    async def _handle(self, lease: Lease) -> Any:
        self.greeter.handled.append(lease.payload)

    async def _answer(self, request: Request) -> Response:
        return JSONResponse({"name": request.path_params["name"]})

    async def _loop(self) -> None:
        self.greeter.loops += 1
        await asyncio.Event().wait()


@pytest.fixture
async def greeting(make_butler: MakeButler, monkeypatch: pytest.MonkeyPatch) -> InProcessButler:
    monkeypatch.setattr(roles, "ROLES", (*roles.ROLES, GreetingRole))
    tester = make_butler()
    await tester.start()
    return tester


async def test_role_contributes_tool_service_worker_route_loop_and_hops(
    greeting: InProcessButler,
) -> None:
    greeter = greeting.butler.service(Greeter)
    request_id = uuid7()
    async with greeting.owner() as owner:
        assert await owner.call("greet") == {"greeting": "hello from tester"}
        (hop,) = (await owner.call("request_path", {"request_id": str(request_id)}))["hops"]
    assert (hop["hop"], hop["request_id"]) == ("greeted", str(request_id))
    async with greeting.butler.database.transaction() as connection:
        await queue.enqueue(connection, QUEUE, "one", {"say": "hello"})
    await until("the item to be handled", lambda: greeter.handled or None)
    assert greeter.handled == [{"say": "hello"}]
    assert greeter.loops == 1
    url = greeting.butler.url.replace("/mcp", "/greet/anna")
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(url)).json() == {"name": "anna"}


async def test_role_names_the_rows_that_retention_deletes(greeting: InProcessButler) -> None:
    async with greeting.butler.database.transaction() as connection:
        await connection.execute("CREATE TABLE greetings (request_id uuid, greeted_at timestamptz)")
        await connection.execute(
            "INSERT INTO greetings VALUES ($1, now() - interval '400 days'), ($1, now())", uuid7()
        )
    config = greeting.butler.config
    storage = config.storage.model_copy(update={"keep_days": 365})
    retention = Retention(
        config.model_copy(update={"storage": storage}),
        greeting.butler.database,
        greeting.butler.clock,
        greeting.butler.roles,
    )
    assert (await retention.sweep())["greetings"] == 1
    assert await greeting.count("greetings") == 1


async def test_missing_service_is_a_clear_error(tester: InProcessButler) -> None:
    with pytest.raises(LookupError, match="no role of tester provides Greeter"):
        tester.butler.service(Greeter)


def imports_of(kind: type) -> dict[str, str]:
    """Return the names that the class's module imports, also those for type checking, and their packages."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(kind)))  # type: ignore[arg-type]
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module)
    return {
        alias.asname or alias.name: ".".join(str(node.module).split(".")[:2])
        for node in found
        for alias in node.names
    }


def annotations_of(kind: type) -> str:
    """Return the annotations of a class's attributes, properties and methods as text."""
    members = (getattr(member, "fget", member) for member in vars(kind).values())
    owners = [kind, *(member for member in members if isinstance(member, FunctionType))]
    return " ".join(str(text) for owner in owners for text in owner.__annotations__.values())


@pytest.mark.parametrize("kind", [Butler, Services, CallContext])
def test_shared_classes_do_not_name_types_of_a_special_butler(kind: type) -> None:
    imported = imports_of(kind)
    packages = {imported.get(name) for name in re.findall(r"\w+", annotations_of(kind))}
    assert "butlers.domain" in packages
    assert not packages & {"butlers.switchboard", "butlers.messenger"}
    assert not any(role.__name__ in annotations_of(kind) for role in roles.ROLES)
    known = {SwitchboardRole, MessengerRole, SchedulingRole, ApprovalsRole}
    assert known == set(roles.ROLES)
