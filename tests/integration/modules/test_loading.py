"""Modules in a complete daemon: started in order; an invalid graph starts nothing."""

from __future__ import annotations

import asyncpg
import pytest
from structlog.testing import capture_logs

from butlers.db.database import Login
from butlers.domain.errors import ConfigInvalid, PhaseFailed
from butlers.domain.module import FailurePhase
from support.postbox import ALONE, GOOD, WAYS, events
from support.postbox_butler import PostboxButler

EMAIL = {"email": 'address = "postbox@example.org"'}
# The order of a start, as the seeds give it and the decisions on them settle it.
PHASES = [
    "initialize telemetry",
    "load modules",
    "validate config",
    "validate environment",
    "provision database",
    "apply core migrations",
    "apply butler migrations",
    "apply module migrations",
    "set up credentials",
    "validate core credentials",
    "start modules",
    "create spawner",
    "wire pipeline",
    "sync schedules",
    "connect switchboard",
    "start server",
    "apply approval gates",
    "start buffer",
    "recover route inbox",
    "start heartbeat",
    "start scheduler",
    "start liveness reporter",
]
# A module that stores its section's values at start.
OPEN = """
from pydantic import BaseModel, ConfigDict

from butlers.sdk import Module


class OpenConfig(BaseModel):
    model_config = ConfigDict(extra="allow")


class Open(Module):
    name = "{name}"
    config_schema = OpenConfig

    def migration_directory(self):
        return None

    async def on_startup(self, config, db):
        self.at_start = config.model_dump()
"""
SECTIONS = {
    "calendar": 'provider = "google"\nconflicts.policy = "suggest"',
    "contacts": "sync.interval_minutes = 60",
    "telegram": 'bot.token_env = "BUTLER_TELEGRAM_TOKEN"',
    "memory": "consolidation.interval_hours = 24",
}


def modules_that_log(**dependencies: tuple[str, ...]) -> dict[str, str]:
    """Modules that record their start and end in one list."""
    return {
        name: (
            "import sys\nfrom butlers.sdk import Module\n"
            "happened = sys.modules[__package__.rpartition('.')[0]].__dict__"
            ".setdefault('happened', [])\n"
            f"class Made(Module):\n    name = {name!r}\n    dependencies = {needs!r}\n"
            "    async def on_startup(self, config, db):\n"
            "        happened.append(self.name + ' started')\n"
            "    async def on_shutdown(self):\n"
            "        happened.append(self.name + ' stopped')\n"
        )
        for name, needs in dependencies.items()
    }


async def assert_nothing_was_begun(postbox: PostboxButler, admin: Login) -> None:
    """Assert that neither database nor server was started."""
    assert not hasattr(postbox.butler, "database")
    assert not hasattr(postbox.butler, "mcp")
    connection = await asyncpg.connect(**admin.arguments("tests"))
    try:
        found = await connection.fetch(
            "SELECT FROM pg_database WHERE datname = $1", postbox.database_name
        )
    finally:
        await connection.close()
    assert found == []


@pytest.mark.scenario("S002-15")
async def test_module_is_loaded_migrated_started_and_registers_its_tools(
    postbox: PostboxButler,
) -> None:
    with capture_logs() as log:
        butler = await postbox.start(EMAIL)
    (email,) = butler.modules
    assert (email.name, butler.modules.state("email").available) == ("email", True)
    applied = [line["revision"] for line in log if line.get("chain") == "email"]
    assert applied == ["email_001"]
    (recorded,) = await postbox.rows("SELECT version_num FROM alembic_version_email")
    assert recorded["version_num"] == "email_001"
    assert await postbox.rows("SELECT * FROM email_messages") == []
    assert postbox.module("email").lifecycle == ["email started"]
    assert events(log, "module initialized") == [("module initialized", "email")]
    async with postbox.connect() as client:
        mail = {"to": "ada@example.org", "subject": "Tea", "body": "At five."}
        sent = await client.call("bot_email_send_message", mail)
    (kept,) = await postbox.rows("SELECT id, recipient FROM email_messages")
    assert (str(kept["id"]), kept["recipient"]) == (sent["id"], "ada@example.org")


@pytest.mark.scenario("S002-16")
async def test_dependencies_start_first(postbox: PostboxButler) -> None:
    assert list(GOOD) == ["calendar", "email"]  # the file has the reverse order
    with capture_logs() as log:
        butler = await postbox.start(GOOD)
    assert butler.modules.modules[1].dependencies == ("email",)
    assert postbox.module("email").lifecycle == ["email started", "calendar started"]
    assert events(log, "module initialized") == [
        ("module initialized", "email"),
        ("module initialized", "calendar"),
    ]


@pytest.mark.scenario("S002-17")
async def test_missing_dependency_aborts_the_start(postbox: PostboxButler, admin: Login) -> None:
    with pytest.raises(PhaseFailed) as failed:
        await postbox.start({"calendar": ""})
    assert failed.value.phase == "load modules"
    assert "the calendar module requires email" in failed.value.message
    assert isinstance(failed.value.__cause__, ConfigInvalid)
    assert "add [modules.email]" in (failed.value.hint or "")
    await assert_nothing_was_begun(postbox, admin)


@pytest.mark.scenario("S002-18")
async def test_circular_dependency_aborts_the_start(postbox: PostboxButler, admin: Login) -> None:
    code = modules_that_log(a=("b",), b=("a",))
    with pytest.raises(PhaseFailed) as failed:
        await postbox.start({"a": "", "b": ""}, code=code)
    assert failed.value.phase == "load modules"
    assert "circular dependency: a → b → a" in failed.value.message
    await assert_nothing_was_begun(postbox, admin)


@pytest.mark.scenario("S002-34")
async def test_modules_stop_in_reverse_order(postbox: PostboxButler) -> None:
    code = modules_that_log(a=(), b=("a",), c=("b",))
    butler = await postbox.start({"c": "", "b": "", "a": ""}, code=code)
    happened = postbox.module("a").happened
    assert happened == ["a started", "b started", "c started"]
    with capture_logs() as log:
        await butler.stop()
    assert happened[3:] == ["c stopped", "b stopped", "a stopped"]
    assert [module for _, module in events(log, "module shutdown")] == ["c", "b", "a"]


@pytest.mark.scenario("S001-04")
@pytest.mark.parametrize("phase", FailurePhase)
async def test_phases_run_in_order_despite_a_failed_module(
    postbox: PostboxButler, phase: FailurePhase
) -> None:
    lines, reason = WAYS[phase]
    modules = {"email": lines, "alone": ""}
    with capture_logs() as log:
        butler = await postbox.start(modules, code={"alone": ALONE})
    events = [line for line in log if line["event"] in ("config loaded", "phase started")]
    config, *begun = [line.get("phase", line["event"]) for line in events if line != events[0]]
    assert (events[0]["phase"], config) == ("open the port", "config loaded")
    assert [name for name in begun if name in PHASES] == PHASES

    email, alone = butler.modules.states()
    assert (email.available, email.failure_phase) == (False, phase)
    assert reason in str(email.failure_error)
    assert alone.available
    async with postbox.connect() as client:
        assert not {"bot_email_send_message", "smuggled_tool"} & await client.names()
        assert await client.call("alone_ping", {}) == {"answer": "pong"}
        assert (await client.call("status", {}))["health"] == "degraded"
        assert (await client.call("trigger", {"prompt": "hello"}))["session_id"]


@pytest.mark.scenario("S001-14")
async def test_module_chain_runs_in_the_butlers_schema_and_fails_alone(
    postbox: PostboxButler,
) -> None:
    chain = """
        SELECT schemaname, tablename FROM pg_tables
        WHERE tablename IN ('email_messages', 'alembic_version_email', 'email_half') ORDER BY 2
        """
    schema = 'db.schema = "postbox"'
    good = await postbox.start(EMAIL, extra=schema)
    assert good.modules.modules[0].migration_revisions() == "email"
    assert [tuple(row.values()) for row in await postbox.rows(chain)] == [
        ("postbox", "alembic_version_email"),
        ("postbox", "email_messages"),
    ]
    await good.stop()

    broken = {**EMAIL, "email": WAYS[FailurePhase.MIGRATION][0], "alone": ""}
    butler = await postbox.start(
        broken,
        extra='db.schema = "other"',
        name="other",
        code={"alone": ALONE},
    )
    assert "other" not in {row["schemaname"] for row in await postbox.rows(chain)}
    state = butler.modules.state("email")
    assert (state.health, state.failure_phase) == ("failed", FailurePhase.MIGRATION)
    assert butler.is_ready
    async with postbox.connect() as client:
        assert await client.call("alone_ping", {}) == {"answer": "pong"}
        (email, alone) = (await client.call("module.states", {}))["modules"]
    assert (email["health"], alone["health"]) == ("failed", "active")


@pytest.mark.scenario("S001-39")
async def test_section_enables_its_module_with_its_configuration(
    postbox: PostboxButler,
) -> None:
    code = {name: OPEN.format(name=name) for name in SECTIONS}
    butler = await postbox.start(SECTIONS, code=code)
    assert butler.modules.healthy
    at_start = {module.name: module.at_start for module in butler.modules}  # type: ignore[attr-defined]
    assert at_start == {
        "calendar": {"provider": "google", "conflicts": {"policy": "suggest"}},
        "contacts": {"sync": {"interval_minutes": 60}},
        "telegram": {"bot": {"token_env": "BUTLER_TELEGRAM_TOKEN"}},
        "memory": {"consolidation": {"interval_hours": 24}},
    }
    await butler.stop()

    fewer = {name: SECTIONS[name] for name in ("calendar", "contacts")}
    butler = await postbox.start(fewer, code=code)  # the code of the others is still there
    assert [module.name for module in butler.modules] == ["calendar", "contacts"]
