"""Phases of modules: order, failures, cascades and shutdown."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from butlers.db.migrations import Chain
from butlers.domain.errors import ConfigInvalid, DatabaseUnavailable
from butlers.domain.module import FailurePhase, ModuleFailed, ModuleHealth, ModuleState
from support.postbox import ALONE, GOOD, WAYS, ModuleHarness, events

MakeModules = Callable[..., ModuleHarness]

OF_POSTBOX = [
    "bot_email_send_message",
    "bot_email_search_inbox",
    "bot_email_read_message",
    "calendar_add_event",
]


async def test_modules_start_after_their_dependencies(make_modules: MakeModules) -> None:
    harness = make_modules()
    with capture_logs() as log:
        modules = await harness.bring_up()
    assert [module.name for module in modules.modules] == ["email", "calendar"]
    assert harness.applied == ["email_001", "calendar_001"]
    assert {"email_messages", "calendar_events", "alembic_version_email"} <= await harness.tables()
    assert harness.lifecycle == ["email started", "calendar started"]
    assert events(log, "module initialized") == [
        ("module initialized", "email"),
        ("module initialized", "calendar"),
    ]
    assert harness.tools == OF_POSTBOX
    assert modules.states() == (ModuleState("email"), ModuleState("calendar"))
    assert modules.healthy


async def test_second_start_migrates_nothing(make_modules: MakeModules) -> None:
    first = make_modules()
    await (await first.bring_up()).stop()
    second = make_modules()
    await second.bring_up()
    assert second.applied == []


@pytest.mark.scenario("S001-13")
@pytest.mark.parametrize("phase", FailurePhase)
async def test_failure_cascades_to_dependents_only(
    make_modules: MakeModules, phase: FailurePhase
) -> None:
    lines, reason = WAYS[phase]
    harness = make_modules({"calendar": "", "email": lines, "alone": ""}, code={"alone": ALONE})
    with capture_logs() as log:
        modules = await harness.bring_up()
    assert [module.name for module in modules.modules] == ["email", "calendar", "alone"]
    email, calendar, alone = modules.states()
    assert (email.health, email.failure_phase, email.enabled) == (ModuleHealth.FAILED, phase, True)
    assert reason in str(email.failure_error)
    assert (calendar.health, calendar.failure_phase) == (ModuleHealth.CASCADE_FAILED, phase)
    assert str(calendar.failure_error).startswith("it depends on email, which failed: ")
    assert calendar.enabled
    assert alone == ModuleState("alone")
    assert harness.tools == ["alone_ping"]
    assert not modules.healthy
    failed = [line for line in log if line["event"] == "module failed"]
    assert [(line["module"], line["phase"]) for line in failed] == [
        ("email", phase),
        ("calendar", phase),
    ]
    assert reason in failed[0]["error"]
    assert failed[1]["cause"] == "email"


@pytest.mark.parametrize("phase", FailurePhase)
async def test_strict_modules_abort_the_start_and_stop_started_modules(
    make_modules: MakeModules, phase: FailurePhase
) -> None:
    lines, reason = WAYS[phase]
    first = ALONE.replace("alone", "first").replace("Alone", "First") + (
        "    async def on_startup(self, config, db):\n        events.append('first started')\n"
        "    async def on_shutdown(self):\n        events.append('first stopped')\n"
        "events = []\n"
    )
    harness = make_modules(
        {"first": "", "email": lines, "calendar": ""},
        extra="strict_modules = true",
        code={"first": first},
    )
    with capture_logs() as log, pytest.raises(ModuleFailed) as failed:
        await harness.bring_up()
    assert (failed.value.module, failed.value.phase) == ("email", phase)
    assert reason in failed.value.message
    started = {
        FailurePhase.STARTUP: ["first"],
        FailurePhase.TOOLS: ["first", "email", "calendar"],
    }.get(phase, [])
    assert events(log, "module initialized", "module shutdown") == [
        *(("module initialized", name) for name in started),
        *(("module shutdown", name) for name in reversed(started)),
    ]
    assert "calendar started" not in harness.lifecycle or phase is FailurePhase.TOOLS
    await harness.modules.stop()  # again, as the butler's own stack will
    assert len(events(log, "module shutdown")) == len(started)


async def test_module_that_fails_after_its_start_is_shut_down(
    make_modules: MakeModules,
) -> None:
    harness = make_modules({"calendar": "", "email": WAYS[FailurePhase.TOOLS][0]})
    await harness.bring_up()
    assert harness.lifecycle == [
        "email started",
        "calendar started",
        "calendar stopped",
        "email stopped",
    ]
    await harness.modules.stop()
    assert len(harness.lifecycle) == 4


async def test_modules_stop_in_reverse_despite_errors(
    make_modules: MakeModules,
) -> None:
    crash = 'address = "postbox@example.org"\nfail = "shutdown"'
    harness = make_modules({"email": crash, "calendar": "", "alone": ""}, code={"alone": ALONE})
    modules = await harness.bring_up()
    with capture_logs() as log:
        await modules.stop()
    assert events(log, "module shutdown", "module shutdown failed") == [
        ("module shutdown", "alone"),
        ("module shutdown", "calendar"),
        ("module shutdown failed", "email"),
    ]
    assert harness.lifecycle[-2:] == ["calendar stopped", "email stopped"]


async def test_failed_migration_is_rolled_back(make_modules: MakeModules) -> None:
    harness = make_modules({"email": WAYS[FailurePhase.MIGRATION][0]})
    await harness.bring_up()
    assert not {"email_half", "email_messages", "calendar_events"} & await harness.tables()


async def test_invalid_section_names_file_line_and_key(make_modules: MakeModules) -> None:
    harness = make_modules({"email": 'address = "a@example.org"\nfail = "nowhere"'})
    await harness.bring_up()
    (email,) = harness.modules.states()
    line = (harness.config.file.read_text().splitlines()).index('fail = "nowhere"') + 1
    assert str(email.failure_error).startswith(
        f"{harness.config.file}:{line}: modules.email.fail: "
    )
    missing = make_modules({"email": ""})
    await missing.bring_up()
    assert "modules.email.address: address is required" in str(
        missing.modules.states()[0].failure_error
    )


async def test_credential_comes_from_the_configured_variable(
    make_modules: MakeModules,
) -> None:
    harness = make_modules(
        {"email": 'address = "postbox@example.org"\npassword_env = "POSTBOX_PASSWORD"'}
    )
    harness.environ["POSTBOX_PASSWORD"] = "correct horse"
    modules = await harness.bring_up()
    assert modules.healthy
    assert modules.modules[0].password == "correct horse"  # type: ignore[attr-defined]


async def test_a_secret_in_an_error_does_not_reach_the_state(make_modules: MakeModules) -> None:
    leaks = (
        "from butlers.sdk import Module\nclass Leaky(Module):\n    name = 'leaky'\n"
        "    async def on_startup(self, config, db, credential_store):\n"
        "        word = await credential_store.resolve('PASS', env='LEAKY_PASSWORD')\n"
        "        raise RuntimeError('login failed with ' + str(word))\n"
    )
    harness = make_modules({"leaky": ""}, code={"leaky": leaks})
    harness.environ["LEAKY_PASSWORD"] = "a-planted-secret-4711"
    with capture_logs() as log:
        await harness.bring_up()
    (state,) = harness.modules.states()
    assert "login failed with" in str(state.failure_error)
    assert "a-planted-secret-4711" not in str(state.failure_error)
    (line,) = (line for line in log if line["event"] == "module failed")
    assert "a-planted-secret-4711" not in line["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        "self, config, db",
        "self, config, db, credential_store",
        "self, config, db, credential_store=None",
        "self, config, db, *, credential_store=None",
        "self, *arguments",
    ],
)
async def test_on_startup_takes_two_or_three_arguments(
    make_modules: MakeModules, arguments: str
) -> None:
    code = (
        "from butlers.sdk import Module\nclass Choosy(Module):\n    name = 'choosy'\n"
        f"    async def on_startup({arguments}):\n        self.given = locals()\n"
    )
    harness = make_modules({"choosy": ""}, code={"choosy": code})
    modules = await harness.bring_up()
    assert modules.healthy
    given = modules.modules[0].given  # type: ignore[attr-defined]
    if "credential_store" in arguments:
        assert given["credential_store"] is not None
    if "db" in arguments:
        assert given["db"] is harness.database
        assert given["config"] is modules.modules[0].config


async def test_hanging_start_and_shutdown_time_out(make_modules: MakeModules) -> None:
    code = (
        "import asyncio\nfrom butlers.sdk import Module\nclass Slow(Module):\n    name = 'slow'\n"
        "    async def on_startup(self, config, db):\n        await asyncio.sleep({start})\n"
        "    async def on_shutdown(self):\n        await asyncio.sleep({stop})\n"
    )
    hangs = make_modules({"slow": ""}, code={"slow": code.format(start=3600, stop=0)})
    await hangs.bring_up(startup_timeout_s=0.05)
    (state,) = hangs.modules.states()
    assert state.failure_phase is FailurePhase.STARTUP
    assert "on_startup took longer than 0.05 s" in str(state.failure_error)
    lingers = make_modules({"slow": ""}, code={"slow": code.format(start=0, stop=3600)})
    modules = await lingers.bring_up(shutdown_timeout_s=0.05)
    with capture_logs() as log:
        await modules.stop()
    assert events(log, "module shutdown failed") == [("module shutdown failed", "slow")]


async def test_cancelled_start_is_not_a_module_failure(make_modules: MakeModules) -> None:
    code = (
        "import asyncio\nfrom butlers.sdk import Module\nclass Slow(Module):\n    name = 'slow'\n"
        "    begun = asyncio.Event()\n"
        "    async def on_startup(self, config, db):\n"
        "        self.begun.set()\n        await asyncio.sleep(3600)\n"
    )
    harness = make_modules({"slow": ""}, code={"slow": code})
    modules = harness.load()
    await modules.validate_config()
    starting = asyncio.create_task(modules.start(harness.database))
    await modules.modules[0].begun.wait()  # type: ignore[attr-defined]
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert harness.modules.states() == (ModuleState("slow"),)


async def test_lost_database_is_not_a_module_failure(make_modules: MakeModules) -> None:
    harness = make_modules()
    modules = harness.load()
    await modules.validate_config()

    async def gone(_chain: Chain) -> None:
        raise DatabaseUnavailable

    with pytest.raises(DatabaseUnavailable):
        await modules.migrate(gone, harness.config.directory)
    assert modules.healthy


async def test_module_that_cannot_be_imported_fails_alone(make_modules: MakeModules) -> None:
    code = {"alone": ALONE, "torn": "import no_such_package_at_all\n", "vain": "x = 1\n"}
    harness = make_modules({**GOOD, "alone": "", "torn": "", "vain": ""}, code=code)
    modules = await harness.bring_up()
    health = {state.name: state for state in modules.states()}
    assert health["torn"].failure_phase is FailurePhase.CONFIG
    assert "no_such_package_at_all" in str(health["torn"].failure_error)
    assert os.path.join("modules", "torn", "__init__.py") in str(health["torn"].failure_error)
    assert "it defines no module, not 'vain'" in str(health["vain"].failure_error)
    assert harness.tools == [*OF_POSTBOX, "alone_ping"]


async def test_butler_without_modules_is_healthy(make_modules: MakeModules) -> None:
    harness = make_modules({})
    modules = await harness.bring_up()
    assert (modules.states(), harness.tools, modules.healthy) == ((), [], True)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ({"calendar": ""}, "the calendar module requires email"),
        ({"emial": ""}, "unknown module 'emial'; did you mean 'email'?"),
    ],
)
async def test_invalid_graph_is_an_error_strict_or_not(
    make_modules: MakeModules, modules: dict[str, str], reason: str, strict: bool
) -> None:
    harness = make_modules(modules, extra=f"strict_modules = {str(strict).lower()}")
    with pytest.raises(ConfigInvalid, match=r"butler\.toml:\d+: ") as refused:
        harness.load()
    assert reason in refused.value.message
    assert refused.value.hint
    assert refused.value.key == f"modules.{next(iter(modules))}"
