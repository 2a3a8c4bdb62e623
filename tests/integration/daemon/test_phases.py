"""Failure of each start-up phase: later ones do not run, earlier ones are undone, the error names it."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx
import pytest
from structlog.testing import capture_logs

from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.daemon.phases import PHASES, Phase
from butlers.db.database import Login
from butlers.domain.errors import ConfigInvalid, PhaseFailed
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

NAMES = [phase.__name__ for phase in PHASES]
AFTER_THE_PORT = NAMES[1:]  # before it nothing answers /health

DECIDED = [
    "initialize_telemetry",
    "load_modules",
    "validate_config",
    "validate_environment",
    "provision_database",
    "apply_core_migrations",
    "apply_butler_migrations",
    "apply_module_migrations",
    "set_up_credentials",
    "validate_core_credentials",
    "start_modules",
    "create_spawner",
    "wire_pipeline",
    "sync_schedules",
    "connect_switchboard",
    "start_server",
    "apply_approval_gates",
    "start_buffer",
    "recover_route_inbox",
    "start_heartbeat",
    "start_scheduler",
    "start_liveness_reporter",
]


class Planted(Exception):
    """Raised by the failing phase."""


def failing_at(name: str, ran: list[str]) -> tuple[Phase, ...]:
    """The real phases, recorded, with one that does its work and then fails."""

    def recorded(phase: Phase) -> Phase:
        async def run(butler: Butler) -> None:
            await phase(butler)
            ran.append(phase.__name__)
            if phase.__name__ == name:
                raise Planted("planted")

        run.__name__ = phase.__name__
        return run

    return tuple(recorded(phase) for phase in PHASES)


def make(tester: InProcessButler, phases: tuple[Phase, ...]) -> Butler:
    butler = Butler(
        tester.config(),
        settings=Settings(tester.home),
        key=tester.key,
        provisioner=tester.provisioner,
        versions=tester.versions,
        phases=phases,
    )
    tester.butlers.append(butler)
    return butler


async def connections_of(admin: Login, tester: InProcessButler) -> int:
    connection = await asyncpg.connect(**admin.arguments("tests"))
    try:
        return int(
            await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = $1",
                tester.config().db.name,
            )
        )
    finally:
        await connection.close()


def health_of(butler: Butler) -> str:
    return butler.url.replace("/mcp", "/health")


def tasks_of(butler: Butler) -> set[str]:
    prefixes = (f"{butler.config.name}:", "worker:", "leases:")
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(prefixes)}


def test_phases_run_in_the_documented_order() -> None:
    assert [name for name in NAMES if name in DECIDED] == DECIDED


@pytest.mark.parametrize("name", AFTER_THE_PORT)
async def test_failing_phase_is_named_and_earlier_phases_are_undone(
    make_butler: MakeButler, admin: Login, name: str
) -> None:
    tester = make_butler()
    ran: list[str] = []
    butler = make(tester, failing_at(name, ran))
    said = name.replace("_", " ")

    with pytest.raises(PhaseFailed, match=f"start-up phase '{said}' failed: planted") as failed:
        await butler.start()

    assert failed.value.phase == said
    assert ran == NAMES[: NAMES.index(name) + 1]
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        state = (await http.get(health_of(butler))).json()
        assert (state["health"], state["phase"]) == ("failed", said)
        assert said in state["error"]
        assert (await http.post(butler.url)).status_code == 503
    assert tasks_of(butler) == set()
    await until(
        "the server to have seen its connections close", lambda: _unconnected(admin, tester)
    )
    assert not list((tester.home / "run").glob("*.json"))

    await butler.stop()
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(health_of(butler))


async def _unconnected(admin: Login, tester: InProcessButler) -> bool:
    return await connections_of(admin, tester) == 0


async def test_each_phase_logs_start_end_and_duration(
    tester: InProcessButler,
) -> None:
    with capture_logs() as logs:
        again = make(tester, PHASES)
        await again.start()
        await again.stop()
    started = [line["phase"] for line in logs if line["event"] == "phase started"]
    ended = [line["phase"] for line in logs if line["event"] == "phase ended"]
    assert started == ended == [name.replace("_", " ") for name in NAMES]
    assert all(line["seconds"] >= 0 for line in logs if line["event"] == "phase ended")


async def test_missing_required_variable_stops_the_start(make_butler: MakeButler) -> None:
    tester = make_butler()
    toml = tester.directory / "butler.toml"
    toml.write_text(toml.read_text() + '\n[butler.env]\nrequired = ["NOT_SET", "NOR_THIS"]\n')
    with pytest.raises(PhaseFailed, match="NOT_SET, NOR_THIS") as failed:
        await tester.start()
    assert failed.value.phase == "validate environment"
    assert isinstance(failed.value.__cause__, ConfigInvalid)


async def test_runtime_without_credential_stops_the_start(make_butler: MakeButler) -> None:
    tester = make_butler()
    toml = tester.directory / "butler.toml"
    toml.write_text(toml.read_text() + '\n[runtime]\ntype = "claude-code"\n')
    with pytest.raises(PhaseFailed, match="ANTHROPIC_API_KEY") as failed:
        await tester.start()
    assert failed.value.phase == "validate core credentials"
    assert failed.value.hint
