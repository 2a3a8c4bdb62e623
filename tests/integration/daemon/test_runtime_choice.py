"""Choice of a butler's runtime: the configured CLI, or the first usable one."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import MappingProxyType

import pytest

from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.domain.errors import PhaseFailed
from butlers.domain.session import SessionResult
from butlers.runtimes.base import Runtime
from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.gemini import GeminiAdapter
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
