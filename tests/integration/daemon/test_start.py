"""Observation of a start after each phase: which parts exist, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from structlog.testing import capture_logs

from butlers.daemon.butler import READY, Butler
from butlers.daemon.phases import PHASES, Phase, register_tools
from butlers.db.database import Login
from butlers.domain.errors import DatabaseUnavailable, PhaseFailed
from butlers.switchboard.ingest import InboundService
from support import mcp_clients as clients
from support.in_process import InProcessButler, MakeButler

# The nine steps of a start, by the phase that takes each.
STEPS = {
    "config": "open_the_port",
    "database": "provision_database",
    "pool": "open_pool",
    "core tables": "apply_core_migrations",
    "own tables": "apply_butler_migrations",
    "modules": "start_modules",
    "core tools": "register_tools",
    "module tools": "register_tools",
    "server": "start_server",
}
BROKEN = """
from alembic import op

revision = "core_999"
down_revision = "{head}"


def upgrade() -> None:
    op.execute("CREATE TABEL oops (x int)")
"""


@dataclass
class Witness:
    """Records, after each phase, which parts exist."""

    tester: InProcessButler
    admin: Login
    stands: dict[str, str] = field(default_factory=dict)  # part -> the phase after which it existed

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(self._watched(phase) for phase in PHASES)

    def _watched(self, phase: Phase) -> Phase:
        async def run(butler: Butler) -> None:
            await phase(butler)
            for what in await self._look(butler):
                self.stands.setdefault(what, phase.__name__)

        run.__name__ = phase.__name__
        return run

    async def _look(self, butler: Butler) -> list[str]:
        tables = await self.tables()
        tools = await _tools(butler)
        module = self.tester.bench(butler) if _has(butler, "modules") else None
        signs = {
            "config": butler.config.name == "tester",
            "database": tables is not None,
            "pool": _has(butler, "database") and butler.database.pool.get_size() > 0,
            "core tables": tables is not None
            and {"state", "scheduled_tasks", "sessions"} <= tables,
            "own tables": tables is not None and "entries" in tables,
            "modules": module is not None and "started" in module.running,
            "core tools": {"status", "tick", "trigger"} <= tools,
            "module tools": {"quick", "write"} <= tools,
            "server": await _answers(butler),
        }
        return [what for what, stands in signs.items() if stands]

    async def tables(self) -> set[str] | None:
        """Return the tables, or None if there is no such database."""
        name = self.tester.config().db.name
        try:
            connection = await asyncpg.connect(
                **{**self.admin.arguments("tests"), "database": name}
            )
        except asyncpg.InvalidCatalogNameError:
            return None
        try:
            return {row["tablename"] for row in await connection.fetch("SELECT * FROM pg_tables")}
        finally:
            await connection.close()


def _has(butler: Butler, part: str) -> bool:
    return hasattr(butler, part)


async def _tools(butler: Butler) -> set[str]:
    if not _has(butler, "mcp"):
        return set()
    return {tool.name for tool in await butler.mcp.list_tools(run_middleware=False)}


async def _answers(butler: Butler) -> bool:
    """Return whether MCP is served: a request is then rejected only because it has no token."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        return (await http.post(butler.url, json={})).status_code == 401


def record_module_start(tester: InProcessButler) -> None:
    """Let the bench module record its start."""
    file = tester.directory / "modules" / "__init__.py"
    file.write_text(
        file.read_text()
        + "\n    async def on_startup(self, config, db):\n        running.append('started')\n"
    )


@pytest.mark.scenario("S002-28", "S002-36")
async def test_each_phase_creates_its_part(make_butler: MakeButler, admin: Login) -> None:
    tester = make_butler()
    record_module_start(tester)
    witness = Witness(tester, admin)
    butler = tester.make(phases=witness.phases)
    assert (butler.config.name, butler.phase) == ("tester", "created")

    await butler.start()

    assert witness.stands == STEPS
    assert list(witness.stands) == list(STEPS)
    assert butler.phase == READY
    for connect in clients.ALL:
        async with connect(butler.url, tester.owner_token) as client:
            assert (await client.call("quick", {"text": "hello"}))["text"] == "hello"


@pytest.mark.scenario("S002-29")
async def test_failing_core_migration_stops_the_start_with_its_error(
    make_butler: MakeButler, admin: Login
) -> None:
    tester = make_butler()
    record_module_start(tester)
    head = max(path.stem for path in (tester.versions / "core").glob("core_*.py"))
    broken = BROKEN.format(head="_".join(head.split("_")[:2]))
    (tester.versions / "core" / "core_999_broken.py").write_text(broken)
    witness = Witness(tester, admin)
    butler = tester.make(phases=witness.phases)

    with capture_logs() as logs, pytest.raises(PhaseFailed) as failed:
        await butler.start()

    assert failed.value.phase == "apply core migrations"
    assert 'syntax error at or near "TABEL"' in failed.value.message
    assert [line["phase"] for line in logs if line["event"] == "phase started"][-1] == (
        "apply core migrations"
    )
    assert list(witness.stands) == ["config", "database", "pool"]
    assert "entries" not in (await witness.tables() or ())
    assert "started" not in tester.bench(butler).running
    assert not hasattr(butler, "mcp")
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        assert (await http.post(butler.url, json={})).status_code == 503
        state: dict[str, Any] = (await http.get(butler.url.replace("/mcp", "/health"))).json()
    assert (state["health"], state["phase"]) == ("failed", "apply core migrations")
    assert "TABEL" in state["error"]


def with_switchboard(tester: InProcessButler) -> None:
    toml = tester.directory / "butler.toml"
    toml.write_text(
        toml.read_text().replace(
            "[modules.bench]",
            '[butler.switchboard]\nadvertise = true\nurl = "http://127.0.0.1:9/mcp"\n[modules.bench]',
        )
    )


async def test_only_the_switchboard_has_the_inbound_service_and_does_not_register(
    make_butler: MakeButler, tmp_path: Path
) -> None:
    tester = make_butler()
    with_switchboard(tester)
    domain, switchboard = await tester.start(), await make_butler("switchboard").start()
    assert domain.services.find(InboundService) is None
    assert domain.registrar is not None
    assert switchboard.service(InboundService)
    assert switchboard.registrar is None


async def test_start_is_repeated_when_the_database_goes_away_during_it(
    make_butler: MakeButler,
) -> None:
    tries: list[str] = []

    async def lose_the_database(butler: Butler) -> None:
        tries.append(butler.phase)
        if len(tries) < 3:
            raise DatabaseUnavailable("the server was killed")

    at = PHASES.index(register_tools)
    tester = make_butler()
    butler = tester.make(phases=(*PHASES[:at], lose_the_database, *PHASES[at:]))
    with capture_logs() as logs:
        await butler.start()
    assert (len(tries), butler.phase, butler.failure) == (3, READY, None)
    assert [line["event"] for line in logs].count("start is repeated") == 2
    async with tester.owner() as owner:
        assert (await owner.call("status"))["health"] == "healthy"


async def test_start_that_fails_otherwise_is_not_repeated(make_butler: MakeButler) -> None:
    tries: list[str] = []

    async def fail(butler: Butler) -> None:
        tries.append(butler.phase)
        raise ValueError("a fault of ours")

    butler = make_butler().make(phases=(*PHASES[: PHASES.index(register_tools)], fail))
    with pytest.raises(PhaseFailed, match="a fault of ours"):
        await butler.start()
    assert tries == ["fail"]
