"""The command line of Codex and its files."""

from __future__ import annotations

import asyncio
import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand, TimeLimits
from butlers.runtimes.base import Grants, Invocation, McpServer, Terms, Workspace
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.codex.command import Catalog, bundled

TOKEN = "bs.token-of-the-session"
URL = "http://127.0.0.1:1/mcp?runtime_session_id=1"
CATALOG = Catalog(
    (
        {"slug": "second", "priority": 2, "visibility": "list", "tool_mode": "code_mode_only"},
        {
            "slug": "first",
            "priority": 1,
            "visibility": "list",
            "supports_search_tool": True,
            "apply_patch_tool_type": "freeform",
        },
        {"slug": "hidden", "priority": 0, "visibility": "hide"},
    )
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "butler").mkdir()
    return Workspace(tmp_path / "butler", tmp_path / "private")


def compose(
    workspace: Workspace,
    access: Access = Access.SEALED,
    *,
    prompt: str = "go",
    system: str = "The system prompt.",
    env: dict[str, str] | None = None,
    **terms: Any,
) -> ProcessCommand:
    adapter = CodexAdapter(Path("/opt/codex"))
    adapter.catalog = CATALOG
    servers = {"tester": McpServer(URL, TOKEN)}
    given = {"PATH": "/bin", "HOME": "/root", **(env or {})}
    return adapter.command(
        Invocation(prompt, system, servers, given, Terms(workspace, Grants(access), **terms))
    )


def config(workspace: Workspace) -> dict[str, Any]:
    return tomllib.loads((workspace.home / ".codex" / "config.toml").read_text())


def test_codex_does_not_hold_the_workspace_level() -> None:
    adapter = CodexAdapter(Path("/opt/codex"))
    assert [access for access in Access if adapter.holds(access)] == [Access.SEALED, Access.FULL]


def test_the_environment_is_what_was_given_a_home_and_a_token(workspace: Workspace) -> None:
    assert compose(workspace).env == {
        "PATH": "/bin",
        "HOME": str(workspace.home),
        "TMPDIR": str(workspace.tmp),
        "CODEX_HOME": str(workspace.home / ".codex"),
        "RUST_LOG": "error",
        "BUTLERS_SESSION_TOKEN": TOKEN,
    }


def test_the_token_is_in_no_file_and_no_argument_and_no_shell(workspace: Workspace) -> None:
    command = compose(workspace)
    assert TOKEN not in " ".join(command.argv) + repr(command)
    files = [file for file in workspace.private.rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert TOKEN not in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    excluded = config(workspace)["shell_environment_policy"]["exclude"]
    assert excluded == ["BUTLERS_SESSION_TOKEN", "MCP_SERVERS"]


def test_the_butler_is_its_only_server(workspace: Workspace) -> None:
    compose(workspace, limits=TimeLimits(total_s=90))
    assert config(workspace)["mcp_servers"] == {
        "tester": {
            "url": URL,
            "bearer_token_env_var": "BUTLERS_SESSION_TOKEN",
            "required": True,
            "default_tools_approval_mode": "approve",
            "tool_timeout_sec": 90,
        }
    }


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, "https://api.openai.com/v1"),
        ({"OPENAI_BASE_URL": ""}, "https://api.openai.com/v1"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:2/v1"}, "http://127.0.0.1:2/v1"),
    ],
)
def test_the_provider_is_always_one_of_our_own(
    workspace: Workspace, env: dict[str, str], url: str
) -> None:
    compose(workspace, env=env)
    found = config(workspace)
    provider = found["model_providers"][found["model_provider"]]
    assert provider["base_url"] == url
    assert provider["env_key"] == "OPENAI_API_KEY"
    assert provider["supports_websockets"] is False


def test_sealed_session_has_no_shell_tools(workspace: Workspace) -> None:
    command = compose(workspace)
    found = config(workspace)
    assert (found["approval_policy"], found["sandbox_mode"]) == ("never", "read-only")
    assert found["web_search"] == "disabled"
    on = {name for name, value in found["features"].items() if value}
    assert on == {"mcp_tool_list_changed"}
    assert not any("dangerously" in part for part in command.argv)
    models = json.loads(Path(found["model_catalog_json"]).read_text())["models"]
    for model in models:
        assert (model["tool_mode"], model["supports_search_tool"]) == ("direct", False)
        assert model["apply_patch_tool_type"] is None


def test_full_session_needs_no_permission(workspace: Workspace) -> None:
    command = compose(workspace, Access.FULL)
    found = config(workspace)
    assert "--dangerously-bypass-approvals-and-sandbox" in command.argv
    assert found["features"]["shell_tool"]
    assert not found["features"]["plugins"]
    models = json.loads(Path(found["model_catalog_json"]).read_text())["models"]
    assert models[1]["apply_patch_tool_type"] == "freeform"


def test_switches_disable_telemetry_and_prompt_additions(workspace: Workspace) -> None:
    compose(workspace)
    found = config(workspace)
    assert found["analytics"] == {"enabled": False}
    assert found["otel"] == {"exporter": "none"}
    assert found["check_for_update_on_startup"] is False
    assert found["project_doc_max_bytes"] == 0
    assert found["skills"] == {"include_instructions": False, "bundled": {"enabled": False}}
    assert found["instructions"] == "The system prompt."


def test_empty_system_prompt_is_not_sent(workspace: Workspace) -> None:
    compose(workspace, system=" \n")
    assert "instructions" not in config(workspace)


def test_model_and_own_arguments(workspace: Workspace) -> None:
    command = compose(workspace, model="gpt-5.5", args=("-c", "model_verbosity=high"))
    assert command.argv[-3:] == ("-c", "model_verbosity=high", "-")
    assert command.argv[command.argv.index("-m") + 1] == "gpt-5.5"
    assert "-m" not in compose(workspace).argv


def test_prompt_is_not_on_the_command_line(workspace: Workspace) -> None:
    command = compose(workspace, prompt="a prompt")
    assert command.stdin == b"a prompt"
    assert "a prompt" not in command.argv
    assert command.cwd == workspace.cwd


@pytest.mark.parametrize("strange", ['a"b', "a\\b", "a\nb", "a\x7fb", "Grüße 🎩", "a.b = 'c'"])
def test_any_system_prompt_survives_the_configuration_file(
    workspace: Workspace, strange: str
) -> None:
    compose(workspace, env={"OPENAI_BASE_URL": strange})
    assert config(workspace)["model_providers"]["butlers"]["base_url"] == strange


def test_the_default_model_is_the_first_in_rank() -> None:
    assert CATALOG.default == "first"
    assert Catalog().default is None


@pytest.mark.parametrize("said", ["", "no JSON", "[]", "{}", '{"models": 3}'])
async def test_unreadable_catalog_leaves_the_clis_own(tmp_path: Path, said: str) -> None:
    program = tmp_path / "codex"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    program.chmod(0o755)
    assert await bundled(program) == Catalog()
    assert await bundled(tmp_path / "missing") == Catalog()


def test_catalog_is_read_once(workspace: Workspace, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "codex"
    models = '{"models": [{"slug": "a"}]}'
    program.write_text(f"#!/bin/sh\n[ $1 = debug ] || exit 3\necho x >> {asked}\necho '{models}'\n")
    program.chmod(0o755)
    adapter = CodexAdapter(program)

    async def both() -> None:
        for _ in range(2):
            await adapter.invoke(
                "go", "system", {"tester": McpServer(URL, TOKEN)}, {}, Terms(workspace)
            )

    asyncio.run(both())
    assert asked.read_text() == "x\n"
