"""The gate behind Claude Code's own rules."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.runtimes.claude_code import gate

SCRIPT = "python skills/errand/run.py"
RULES = {
    "readable": ["/srv/b"],
    "writable": ["/srv/b/AGENTS.md"],
    "commands": ["ls skills/", SCRIPT],
}
RULES["scripts"] = [SCRIPT]
CWD = Path("/srv/b")


def runs(command: Any, **more: Any) -> bool:
    return gate.refusal("Bash", {"command": command, **more}, CWD, RULES) is None


@pytest.mark.parametrize(
    "command",
    [
        "ls skills/",
        SCRIPT,
        f"{SCRIPT} a",
        f"{SCRIPT} --n=3 a@b.c 1.5 'x y; $z `w`' 'é'",
        f"{SCRIPT} -v x:y,z",
    ],
)
def test_granted_commands_are_allowed(command: str) -> None:
    assert runs(command)


@pytest.mark.parametrize(
    "more", [*list(';&|$`<>(){}[]*?~#!\\"\n\r\t\x00/'), "..", "' '", "  a", " ", " 'a"]
)
def test_arguments_with_shell_meaning_are_refused(more: str) -> None:
    assert not runs(f"{SCRIPT} a{more}")
    assert not runs(f"{SCRIPT}{more}")
    assert not runs(f"ls skills/{more}")
    assert not runs(f"ls skills/ {more}")


@pytest.mark.parametrize("command", [None, 1, [], {}, ["ls skills/"], True])
def test_non_commands_are_refused(command: Any) -> None:
    assert not runs(command)


def test_nothing_runs_in_the_background() -> None:
    assert not runs("ls skills/", run_in_background=True)


@given(st.text(max_size=20))
def test_the_shell_reads_granted_arguments_as_words_and_nothing_else(arguments: str) -> None:
    assert_read_as_words(arguments)


def assert_read_as_words(arguments: str) -> None:
    """A real shell splits commands that the gate allows into words, without side effects."""
    if runs(f"{SCRIPT} {arguments}"):
        quiet = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {arguments}"], capture_output=True, text=True, cwd="/"
        )
        assert quiet.stdout.split("\n")[:-1] == shlex.split(arguments)
        assert quiet.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("'milk & eggs; ok'", ["milk & eggs; ok"]),
        ("'$(id)' '`id`' '$HOME' '*' '~' '> x'", ["$(id)", "`id`", "$HOME", "*", "~", "> x"]),
        ("''", [""]),
    ],
)
def test_single_quoted_arguments_are_literal(arguments: str, words: list[str]) -> None:
    assert runs(f"{SCRIPT} {arguments}")
    assert shlex.split(arguments) == words
    assert_read_as_words(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        *("'../x'", "'..'", "'/etc/passwd'", "'a/b'", "'a\\b'", "'a\nb'", "'a\x00b'", "'"),
        *("'a", "a'b'", "'a'b", "'a''b'", "'a'$(id)'b'", "'a'\"b\"", '"a"', '"$(id)"', "$'a'"),
    ],
)
def test_quotes_with_shell_meaning_are_refused(arguments: str) -> None:
    assert not runs(f"{SCRIPT} {arguments}")
    assert not runs(f"{SCRIPT} x {arguments}")
    assert not runs(f"ls skills/ {arguments}")


WORDS = st.sampled_from(
    ["a", "--x=1", "'b c'", "';'", "$(id)", "`id`", "'a'b", "''", "x'y", "..", "a/b", "*"]
)


@given(st.lists(WORDS, max_size=4).map(" ".join))
def test_random_commands_never_reach_outside(arguments: str) -> None:
    if runs(f"{SCRIPT} {arguments}"):
        assert not any(
            sign in arguments.replace("';'", "") for sign in ("$", "`", "..", "/", "*", ";")
        )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "b" / "away").symlink_to(tmp_path / "outside")
    return tmp_path


def refused(tool: str, path: object, folder: Path) -> bool:
    rules = {"readable": [f"{folder}/b"], "writable": [f"{folder}/b/AGENTS.md"], "commands": []}
    return (
        gate.refusal(tool, {"file_path": path}, folder / "b", {**rules, "scripts": []}) is not None
    )


@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_only_the_notes_can_be_written(folder: Path, tool: str) -> None:
    assert not refused(tool, f"{folder}/b/AGENTS.md", folder)
    assert not refused(tool, "AGENTS.md", folder)
    for path in (
        "agents.md",
        "sub/AGENTS.md",
        "away/AGENTS.md",
        "../AGENTS.md",
        "AGENTS.md/x",
        "",
        ".",
        None,
        5,
    ):
        assert refused(tool, path, folder), path
    (folder / "b" / "AGENTS.md").symlink_to(folder / "outside" / "x")
    assert refused(tool, "AGENTS.md", folder)


def test_files_inside_are_readable(folder: Path) -> None:
    for path in ("AGENTS.md", "sub/x", f"{folder}/b/sub/../x"):
        assert not refused("Read", path, folder), path
    for path in (
        "../outside/x",
        "away/x",
        f"{folder}/bb/x",
        f"{folder}/b/../x",
        "/etc/passwd",
        "sub/../../x",
    ):
        assert refused("Read", path, folder), path


@pytest.mark.parametrize(
    "tool", ["Glob", "Grep", "WebFetch", "NotebookEdit", "Agent", "", "bash", "read"]
)
def test_any_other_tool_is_refused(tool: str) -> None:
    assert gate.refusal(tool, {"file_path": "/srv/b/x", "command": "ls skills/"}, CWD, RULES)


def test_a_folder_reached_by_a_link_is_the_same_folder(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "b")
    rules = {
        "readable": [f"{folder}/link"],
        "writable": [f"{folder}/link/AGENTS.md"],
        "commands": [],
    }
    for tool in ("Read", "Write"):
        for name in ("link", "b"):
            use = {"file_path": f"{folder}/{name}/AGENTS.md"}
            assert gate.refusal(tool, use, folder, {**rules, "scripts": []}) is None


def ask(rules: Path, asked: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-I", "-S", gate.__file__, str(rules)]
    return subprocess.run(program, input=asked, capture_output=True, text=True)


def test_gate_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(json.dumps(RULES))
    asked = {"tool_name": "Bash", "tool_input": {"command": "ls skills/"}, "cwd": "/srv/b"}
    granted = ask(tmp_path / "rules", json.dumps(asked))
    assert (granted.returncode, granted.stdout) == (0, "")
    asked["tool_input"] = {"command": "ls"}
    answer = json.loads(ask(tmp_path / "rules", json.dumps(asked)).stdout)["hookSpecificOutput"]
    assert answer["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    "asked", ["", "{}", "[]", "no json", '{"tool_name": "Bash", "tool_input": 5, "cwd": "/"}']
)
def test_unknown_configuration_key_fails(tmp_path: Path, asked: str) -> None:
    """The command line around the gate turns its failure into a refusal."""
    (tmp_path / "rules").write_text(json.dumps(RULES))
    assert ask(tmp_path / "rules", asked).returncode != 0
    assert ask(tmp_path / "none", asked).returncode != 0
