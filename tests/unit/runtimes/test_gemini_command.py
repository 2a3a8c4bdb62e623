"""The command line of the Gemini CLI and its files."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand, TimeLimits
from butlers.runtimes.base import Grants, Invocation, McpServer, Terms, Workspace
from butlers.runtimes.cli import safe_commands
from butlers.runtimes.gemini import GeminiAdapter

TOKEN = "bs.token-of-the-session"
URL = "http://127.0.0.1:1/mcp?runtime_session_id=1"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "butler" / "skills" / "errand").mkdir(parents=True)
    (tmp_path / "butler" / "skills" / "errand" / "run.py").touch()
    made = Workspace(tmp_path / "butler", tmp_path / "private")
    for folder in (made.private, made.home):
        folder.mkdir(mode=0o700)
    return made


def compose(
    workspace: Workspace,
    grants: Grants | None = None,
    *,
    name: str = "tester",
    prompt: str = "go",
    env: dict[str, str] | None = None,
    **terms: Any,
) -> ProcessCommand:
    servers = {name: McpServer(URL, TOKEN)}
    given = {"PATH": "/bin", "HOME": "/root", **(env or {})}
    made = Terms(workspace, grants or Grants(), **terms)
    return GeminiAdapter(Path("/opt/gemini")).command(
        Invocation(prompt, "The system prompt.", servers, given, made)
    )


def settings(workspace: Workspace) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((workspace.home / ".gemini" / "settings.json").read_text())
    return found


def after(command: ProcessCommand, flag: str) -> str:
    return command.argv[command.argv.index(flag) + 1]


def rules(command: ProcessCommand) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(Path(after(command, "--policy")).read_text())[
        "rule"
    ]
    return found


def test_the_environment_is_what_was_given_a_home_and_switches(workspace: Workspace) -> None:
    home = workspace.home / ".gemini"
    assert compose(workspace).env == {
        "PATH": "/bin",
        "HOME": str(workspace.home),
        "TMPDIR": str(workspace.tmp),
        "GEMINI_SYSTEM_MD": str(home / "system.md"),
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
        "NODE_OPTIONS": f'--require="{home / "preload.cjs"}"',
    }


def test_system_prompt_is_not_a_template(workspace: Workspace) -> None:
    home = workspace.home / ".gemini"
    compose(workspace)
    mark = (home / "system.md").read_text()
    assert re.fullmatch(r"SYSTEM-PROMPT-[0-9a-f]{32}", mark)
    assert mark in (home / "preload.cjs").read_text()
    assert (home / "words.md").read_text() == "The system prompt."
    compose(workspace)
    assert (home / "system.md").read_text() != mark, "each session has another"


def test_declared_node_options_are_kept(workspace: Workspace) -> None:
    found = compose(workspace, env={"NODE_OPTIONS": "--max-old-space-size=300"}).env["NODE_OPTIONS"]
    assert found.startswith("--max-old-space-size=300 --require=")


def test_the_token_is_in_a_private_file_alone(workspace: Workspace) -> None:
    command = compose(workspace)
    assert TOKEN not in " ".join(command.argv) + json.dumps(dict(command.env)) + repr(command)
    holding = [
        file
        for file in workspace.private.rglob("*")
        if file.is_file() and TOKEN in file.read_text()
    ]
    assert holding == [workspace.home / ".gemini" / "settings.json"]
    for file in workspace.private.rglob("*"):
        assert stat.S_IMODE(file.stat().st_mode) == (0o600 if file.is_file() else 0o700)


def test_the_butler_is_its_only_server(workspace: Workspace) -> None:
    compose(workspace, limits=TimeLimits(total_s=90))
    (name, server), *others = settings(workspace)["mcpServers"].items()
    assert (name, others) == ("tester", [])
    assert server["httpUrl"] == URL
    assert server["headers"] == {"Authorization": f"Bearer {TOKEN}"}
    assert server["timeout"] == 90_000
    assert settings(workspace)["mcp"] == {"allowed": ["tester"]}


def test_underscores_in_server_names_are_replaced_for_policies(
    workspace: Workspace,
) -> None:
    command = compose(workspace, name="my_butler")
    assert list(settings(workspace)["mcpServers"]) == ["my-butler"]
    assert rules(command)[0]["mcpName"] == "my-butler"


def test_switches_disable_telemetry_and_prompt_additions(workspace: Workspace) -> None:
    compose(workspace)
    found = settings(workspace)
    assert found["privacy"] == {"usageStatisticsEnabled": False}
    assert found["telemetry"] == {"enabled": False}
    assert found["general"]["enableAutoUpdate"] is False
    assert found["general"]["enableAutoUpdateNotification"] is False
    assert found["context"] == {"includeDirectoryTree": False}
    assert found["hooksConfig"] == {"enabled": False}


def test_sealed_policy_allows_only_the_butler(workspace: Workspace) -> None:
    cwd = workspace.cwd
    extra = Grants(Access.SEALED, (cwd,), (cwd / "AGENTS.md",), ("ls skills/",))
    for grants in (Grants(), extra):
        command = compose(workspace, grants)
        assert [
            (rule.get("mcpName"), rule["toolName"], rule["decision"]) for rule in rules(command)
        ] == [
            ("tester", "*", "allow"),
            (None, "*", "deny"),
        ]
        assert settings(workspace)["skills"] == {"enabled": False}
        assert "--approval-mode" not in command.argv


def test_sealed_session_runs_in_an_empty_folder(workspace: Workspace) -> None:
    command = compose(workspace)
    assert command.cwd.is_relative_to(workspace.private)
    assert list(command.cwd.iterdir()) == []
    assert not any(part == str(workspace.cwd) for part in command.argv)


def test_full_session_needs_no_permission(workspace: Workspace) -> None:
    command = compose(workspace, Grants(Access.FULL))
    assert after(command, "--approval-mode") == "yolo"
    assert "--policy" not in command.argv
    assert command.cwd == workspace.cwd


def test_command_always_names_a_model(workspace: Workspace) -> None:
    assert after(compose(workspace), "-m") == "gemini-2.5-flash"
    command = compose(workspace, model="gemini-3.1-pro", args=("--debug",))
    assert after(command, "-m") == "gemini-3.1-pro"
    assert command.argv[-1] == "--debug"


@pytest.mark.parametrize("prompt", ["a prompt", "/clear", "@file", "-h"])
def test_prompt_is_neither_argument_nor_command(workspace: Workspace, prompt: str) -> None:
    command = compose(workspace, prompt=prompt)
    assert command.stdin.decode() == f"\n{prompt}"
    assert prompt not in command.argv


def granted(command: ProcessCommand) -> list[tuple[str, str | None]]:
    """Tools and patterns, without the butler's own and the denial of the rest."""
    first, *between, last = rules(command)
    assert (first["mcpName"], last["decision"]) == ("tester", "deny")
    assert all(first["priority"] > rule["priority"] > last["priority"] for rule in between)
    return [(rule["toolName"], rule.get("argsPattern")) for rule in between]


def test_workspace_policy_is_literal(workspace: Workspace) -> None:
    cwd = workspace.cwd
    grants = Grants(Access.WORKSPACE, (cwd,), (cwd / "AGENTS.md",), ("ls skills/",))
    command = compose(workspace, grants)
    (*tools, absolute, _, relative, _, alone, described) = granted(command)
    assert tools == [("read_file", None), ("list_directory", None)]
    assert absolute[0] == "write_file"
    assert re.search(absolute[1] or "", f'{{\0"content":"x"\0,\0"file_path":"{cwd}/AGENTS.md"\0}}')
    assert not re.search(absolute[1] or "", f'{{\0"file_path":"{cwd}/AGENTSxmd"\0}}')
    assert relative == ("write_file", r'\x00"file_path":"AGENTS\.md"\x00')
    assert alone == ("run_shell_command", r'^\{\x00"command":"ls\ skills/"\x00\}$')
    said = '{\0"command":"ls skills/"\0,\0"description":"a \\"b\\""\0}'
    assert re.search(described[1] or "", said)
    assert not re.search(described[1] or "", said.replace("ls", "rm"))
    assert command.cwd == cwd


def test_other_readable_folders_are_included(workspace: Workspace, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    grants = Grants(Access.WORKSPACE, (workspace.cwd, workspace.cwd / "skills", shared))
    assert after(compose(workspace, grants), "--include-directories") == str(shared)
    assert "--include-directories" not in compose(workspace).argv


def test_unreadable_folder_allows_no_read_tool(workspace: Workspace) -> None:
    """The CLI reads in the folder where it stands, whatever it is asked for."""
    grants = Grants(Access.WORKSPACE, (workspace.cwd / "skills",))
    assert granted(compose(workspace, grants)) == []


def test_notes_that_are_a_link_are_not_granted(workspace: Workspace) -> None:
    notes = workspace.cwd / "AGENTS.md"
    notes.symlink_to(workspace.cwd / "butler.toml")
    grants = Grants(Access.WORKSPACE, (), (notes,))
    assert granted(compose(workspace, grants)) == []


@pytest.mark.parametrize(
    "name",
    [
        "a;b.py",
        "a b.py\n",
        "$(id).py",
        "`id`.py",
        "*.py",
        "../../x.py",
        "a&b.py",
        "a|b.py",
        "'a'.py",
    ],
)
def test_script_name_with_other_characters_is_not_granted(workspace: Workspace, name: str) -> None:
    commands = (f"python skills/errand/{name}",)
    assert (
        safe_commands(Grants(Access.WORKSPACE, (workspace.cwd,), (), commands), workspace.cwd) == ()
    )


def test_script_that_links_outside_is_not_granted(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "evil.py").touch()
    (workspace.cwd / "skills" / "errand" / "away.py").symlink_to(tmp_path / "evil.py")
    commands = ("python skills/errand/away.py", "python skills/errand/run.py")
    grants = Grants(Access.WORKSPACE, (workspace.cwd,), (), commands)
    assert safe_commands(grants, workspace.cwd) == ("python skills/errand/run.py",)


@pytest.mark.parametrize("access", [Access.WORKSPACE, Access.FULL])
def test_folder_with_cli_settings_is_not_the_working_folder(
    workspace: Workspace, access: Access
) -> None:
    """Settings of the folder would stand above ours, and their hooks would run."""
    (workspace.cwd / ".gemini").mkdir()
    command = compose(workspace, Grants(access, (workspace.cwd,)))
    assert command.cwd == workspace.private / "empty"
    assert after(command, "--include-directories") == str(workspace.cwd)


def test_running_in_another_folder_is_reported(tmp_path: Path) -> None:
    adapter = GeminiAdapter(Path("gemini"))
    assert adapter.withholds(Access.WORKSPACE, tmp_path) is None
    (tmp_path / ".gemini").mkdir()
    said = adapter.withholds(Access.WORKSPACE, tmp_path)
    assert said == "gemini does not run in the butler's folder, because it would obey .gemini there"
    assert adapter.withholds(Access.FULL, tmp_path) == said
    assert adapter.withholds(Access.SEALED, tmp_path) is None, "a sealed one never does"
