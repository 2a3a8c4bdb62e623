"""Choice of a butler's runtime: the configured CLI, or the first usable one."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import MappingProxyType

import pytest
from structlog.testing import capture_logs

from butlers.config.prices import load_prices
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.domain.errors import PhaseFailed
from butlers.domain.session import SessionResult, Usage
from butlers.runtimes.base import Runtime
from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.cli import CliRuntime
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.gemini import GeminiAdapter
from butlers.sessions.pool import ProcessPool, warm_slots
from support.in_process import InProcessButler, MakeButler

PROGRAMS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini"}
KEYS = {
    "claude-code": "ANTHROPIC_API_KEY",
    "codex": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
ADAPTERS = {"claude-code": ClaudeCodeAdapter, "codex": CodexAdapter, "gemini": GeminiAdapter}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def install(machine: Path, *runtimes: str) -> None:
    for runtime in runtimes:
        program = machine / PROGRAMS[runtime]
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)


async def start(tester: InProcessButler, machine: Path, *credentials: str) -> Butler:
    environ = {"PATH": str(machine), **dict.fromkeys(credentials, "a-key")}
    butler = tester.make(settings=Settings(tester.home, environ=MappingProxyType(environ)))
    await butler.start()
    return butler


@pytest.mark.scenario("S001-31")
@pytest.mark.scenario("S001-37")
@pytest.mark.parametrize("runtime", PROGRAMS)
async def test_config_sets_cli_model_and_concurrency(
    make_butler: MakeButler, machine: Path, runtime: str
) -> None:
    install(machine, *PROGRAMS)
    tester = make_butler(
        extra=f'[runtime]\ntype = "{runtime}"\n[butler.runtime]\nmodel = "the-model"\n'
        "max_concurrent_sessions = 3\n"
    )
    butler = await start(tester, machine, KEYS[runtime])
    chosen = butler.spawner.model
    assert type(chosen) is ADAPTERS[runtime]
    assert chosen.name == runtime
    assert butler.spawner._deps.config.runtime.model == "the-model"
    assert butler.spawner._slots._value == 3
    assert (await butler.status())["runtime"] == runtime


@pytest.mark.scenario("S001-31")
@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_every_adapter_has_the_same_interface(adapter: type[Runtime]) -> None:
    assert inspect.iscoroutinefunction(adapter.invoke)
    names = list(inspect.signature(adapter.invoke).parameters)
    assert names[:5] == ["self", "prompt", "system_prompt", "mcp_servers", "env"]
    assert inspect.signature(adapter.invoke, eval_str=True).return_annotation is SessionResult
    assert {"text", "tool_calls", "usage"} <= set(SessionResult.__slots__)


@pytest.mark.parametrize(
    ("installed", "credentials", "chosen"),
    [
        (PROGRAMS, KEYS.values(), "claude-code"),
        (PROGRAMS, ["OPENAI_API_KEY", "GEMINI_API_KEY"], "codex"),
        (["gemini", "codex"], ["ANTHROPIC_API_KEY", "GEMINI_API_KEY"], "gemini"),
        (["claude-code"], ["CLAUDE_CODE_OAUTH_TOKEN"], "claude-code"),
        (PROGRAMS, [], "reflex"),
        ([], KEYS.values(), "reflex"),
    ],
)
async def test_auto_takes_the_first_installed_cli_with_a_credential(
    house_of_auto: InProcessButler,
    machine: Path,
    installed: list[str],
    credentials: list[str],
    chosen: str,
) -> None:
    install(machine, *installed)
    butler = await start(house_of_auto, machine, *credentials)
    assert butler.spawner.runtime.name == chosen


@pytest.fixture
def house_of_auto(make_butler: MakeButler) -> InProcessButler:
    return make_butler()


@pytest.mark.parametrize("runtime", PROGRAMS)
async def test_configured_cli_that_is_not_installed_fails_with_install_hint(
    make_butler: MakeButler, machine: Path, runtime: str
) -> None:
    tester = make_butler(extra=f'[runtime]\ntype = "{runtime}"\n')
    with pytest.raises(PhaseFailed, match="is not installed") as failed:
        await start(tester, machine, KEYS[runtime])
    assert "npm install -g" in (failed.value.hint or "")


@pytest.mark.parametrize("runtime", PROGRAMS)
async def test_configured_cli_without_credential_fails(
    make_butler: MakeButler, machine: Path, runtime: str
) -> None:
    install(machine, *PROGRAMS)
    tester = make_butler(extra=f'[runtime]\ntype = "{runtime}"\n')
    with pytest.raises(PhaseFailed, match=KEYS[runtime]) as failed:
        await start(tester, machine)
    assert f"butlers secrets set {KEYS[runtime]}" in (failed.value.hint or "")


async def test_codex_is_started_without_its_wrapper(
    make_butler: MakeButler, machine: Path, tmp_path: Path
) -> None:
    """The wrapper leaves an orphan when it is killed; the binary lies beside it."""
    modules = tmp_path / "lib" / "node_modules" / "@openai"
    native = modules / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex"
    wrapper = modules / "codex" / "bin" / "codex.js"
    for program in (native, wrapper):
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (machine / "codex").symlink_to(wrapper)
    tester = make_butler(extra='[runtime]\ntype = "codex"\n')
    butler = await start(tester, machine, "OPENAI_API_KEY")
    assert isinstance(butler.spawner.model, CodexAdapter)
    assert butler.spawner.model.executable == native


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_models_that_are_used_by_default_have_a_price(
    adapter: type[CliRuntime], tmp_path: Path
) -> None:
    prices = load_prices(Settings(tmp_path))
    usage = Usage(1_000_000, 1_000_000, 0)
    default = prices.cost(adapter.default_model, usage)
    small = prices.cost(adapter.small_model, usage)
    assert default is not None
    assert small is not None
    assert small < default / 2


@pytest.mark.parametrize("runtime", PROGRAMS)
async def test_the_switchboard_classifies_on_a_small_model(
    make_butler: MakeButler, machine: Path, runtime: str
) -> None:
    install(machine, runtime)
    butler = await start(make_butler("switchboard"), machine, KEYS[runtime])
    used = butler.spawner._deps.config.runtime.model
    assert used == ADAPTERS[runtime].small_model
    assert butler.runtime_warnings == ()


async def test_at_another_address_no_model_is_assumed(
    make_butler: MakeButler, machine: Path
) -> None:
    """A local server has its own models."""
    install(machine, "claude-code")
    butler = await start(
        make_butler("switchboard"), machine, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
    )
    assert butler.spawner._deps.config.runtime.model is None


async def test_an_untested_version_and_an_unknown_price_are_told_at_start(
    make_butler: MakeButler, machine: Path, tmp_path: Path
) -> None:
    package = tmp_path / "lib" / "node_modules" / "@google" / "gemini-cli"
    program = package / "bundle" / "gemini.js"
    program.parent.mkdir(parents=True)
    program.write_text("#!/usr/bin/env node\n")
    program.chmod(0o755)
    (package / "package.json").write_text('{"name": "@google/gemini-cli", "version": "9.9.9"}')
    (machine / "gemini").symlink_to(program)
    tester = make_butler(
        extra='[runtime]\ntype = "gemini"\n[butler.runtime]\nmodel = "gemini-99"\n'
    )
    with capture_logs() as logs:
        butler = await start(tester, machine, "GEMINI_API_KEY")
    untested, unpriced = (await butler.status())["runtime_warnings"]
    assert untested.startswith("gemini 9.9.9 is not tested")
    assert "npm install -g @google/gemini-cli@" in untested
    assert unpriced == "the price of gemini-99 is unknown; add it to prices.toml"
    told = [line["why"] for line in logs if line["log_level"] == "warning" and "why" in line]
    assert told == [untested, unpriced]


@pytest.mark.parametrize(("butler", "boots"), [("messenger", False), ("switchboard", True)])
async def test_no_warm_process_for_a_butler_that_has_no_sessions(
    make_butler: MakeButler, machine: Path, home: Path, butler: str, boots: bool
) -> None:
    install(machine, "claude-code")
    environ = {"PATH": str(machine), "ANTHROPIC_API_KEY": "a-key"}
    tester = make_butler(butler)
    pool = ProcessPool(1, warm_slots(home, 2), lambda *_: None)
    settings = Settings(tester.home, environ=MappingProxyType(environ))
    await tester.make(settings=settings, shared_pool=pool).start()
    assert (pool._choose() is not None) is boots
