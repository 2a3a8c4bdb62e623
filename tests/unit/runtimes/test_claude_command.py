"""The command line of Claude Code and its files."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import Grants, Invocation, McpServer, Terms, Workspace
from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.claude_code.command import SWITCHES

TOKEN = "bs.token-of-the-session"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    cwd = tmp_path / "butler"
    (cwd / "skills" / "errand").mkdir(parents=True)
    (cwd / "skills" / "errand" / "run.py").touch()
    return Workspace(cwd, tmp_path / "private")


def compose(
    workspace: Workspace, grants: Grants | None = None, prompt: str = "go", **terms: object
) -> ProcessCommand:
    adapter = ClaudeCodeAdapter(Path("/opt/claude"))
    servers = {"tester": McpServer("http://127.0.0.1:1/mcp", TOKEN)}
    made = Terms(workspace, grants or Grants(), **terms)  # type: ignore[arg-type]
    return adapter.command(
        Invocation(prompt, "The system prompt.", servers, {"PATH": "/bin", "HOME": "/root"}, made)
    )


def after(command: ProcessCommand, flag: str) -> str:
    return command.argv[command.argv.index(flag) + 1]


def test_adapter_holds_every_access_level() -> None:
    assert all(ClaudeCodeAdapter(Path("/opt/claude")).holds(access) for access in Access)


def test_the_environment_is_what_was_given_a_home_and_switches(workspace: Workspace) -> None:
    found = dict(compose(workspace).env)
    assert found.pop("PATH") == "/bin"
    assert found.pop("HOME") == str(workspace.home)
    assert found.pop("TMPDIR") == str(workspace.tmp)
    assert SWITCHES.items() <= found.items()
    assert all(name.startswith(("CLAUDE_CODE_", "DISABLE_", "ENABLE_")) for name in found)


def test_the_token_is_in_a_private_file_alone(workspace: Workspace) -> None:
    command = compose(workspace)
    assert TOKEN not in " ".join(command.argv) + json.dumps(dict(command.env)) + repr(command)
    file = Path(after(command, "--mcp-config"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (server,) = json.loads(file.read_text())["mcpServers"].values()
    assert server["headers"] == {"Authorization": f"Bearer {TOKEN}"}


def test_model_and_own_arguments(workspace: Workspace) -> None:
    command = compose(workspace, model="sonnet", args=("--max-turns", "9"))
    assert after(command, "--model") == "sonnet"
    assert command.argv[-2:] == ("--max-turns", "9")
    assert "--model" not in compose(workspace).argv


def test_prompt_is_not_on_the_command_line(workspace: Workspace) -> None:
    command = compose(workspace, prompt="a prompt")
    assert command.stdin == b"a prompt"
    assert "a prompt" not in command.argv


@pytest.mark.parametrize("prompt", ["/clear", "/", "/a b"])
def test_prompt_with_a_slash_gets_a_line_break_before_it(workspace: Workspace, prompt: str) -> None:
    assert compose(workspace, prompt=prompt).stdin.decode() == f"\n{prompt}"


def test_sealed_policy_allows_only_the_butler(workspace: Workspace) -> None:
    cwd = workspace.cwd
    extra = Grants(Access.SEALED, (cwd,), (cwd / "AGENTS.md",), ("ls skills/",))
    for grants in (Grants(), extra):
        command = compose(workspace, grants)
        assert after(command, "--tools") == ""
        assert after(command, "--permission-mode") == "dontAsk"
        settings = json.loads(Path(after(command, "--settings")).read_text())
        assert settings["permissions"]["allow"] == ["mcp__tester__*"]


def rules(command: ProcessCommand) -> list[str]:
    allowed: list[str] = json.loads(Path(after(command, "--settings")).read_text())["permissions"][
        "allow"
    ]
    return allowed


def test_workspace_policy_is_literal(workspace: Workspace) -> None:
    cwd = workspace.cwd
    commands = ("ls skills/", "python skills/errand/run.py")
    command = compose(workspace, Grants(Access.WORKSPACE, (cwd,), (cwd / "AGENTS.md",), commands))
    assert after(command, "--tools") == "Bash,Edit,Read,Write"
    assert rules(command) == [
        "mcp__tester__*",
        f"Read(/{cwd}/**)",
        f"Edit(/{cwd}/AGENTS.md)",
        "Bash(ls skills/)",
        "Bash(python skills/errand/run.py)",
        "Bash(python skills/errand/run.py *)",
    ]


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
        "a>b.py",
        "(a).py",
        '"a".py',
        "'a'.py",
        "a\\b.py",
        "{a,b}.py",
        "~a.py",
        "#a.py",
        "!a.py",
    ],
)
def test_script_name_with_other_characters_is_not_granted(workspace: Workspace, name: str) -> None:
    grants = Grants(Access.WORKSPACE, (workspace.cwd,), (), (f"python skills/errand/{name}",))
    assert not any(rule.startswith("Bash") for rule in rules(compose(workspace, grants)))


def test_script_that_links_outside_is_not_granted(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "evil.py").touch()
    (workspace.cwd / "skills" / "errand" / "away.py").symlink_to(tmp_path / "evil.py")
    commands = ("python skills/errand/away.py", "python skills/errand/away.py run.py")
    grants = Grants(Access.WORKSPACE, (workspace.cwd,), (), commands)
    assert not any(rule.startswith("Bash") for rule in rules(compose(workspace, grants)))


def test_full_session_needs_no_permission(workspace: Workspace) -> None:
    command = compose(workspace, Grants(Access.FULL))
    assert after(command, "--permission-mode") == "bypassPermissions"
    assert command.env["IS_SANDBOX"] == "1"
    assert "--tools" not in command.argv
