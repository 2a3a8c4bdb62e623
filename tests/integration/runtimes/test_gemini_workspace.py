"""Access of a session of the Gemini CLI at the level ``workspace``, attacked by its model.

Every refusal is shown three times: nothing on the disk has changed, the model never got what it was after,
and the session's record names the attempt.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from butlers.domain.session import Access, Outcome, SessionResult
from butlers.runtimes.base import Grants
from support.cli_session import CliSession
from support.clis import GEMINI
from support.fake_model import Call, Say, Use

pytestmark = pytest.mark.parametrize("cli", [GEMINI], indirect=True, ids=["gemini"])

SECRET = "PERIWINKLE"
SCRIPT = "python3 skills/errand/run.py"


def tool(name: str, **arguments: Any) -> Call:
    return Call(name, arguments, anyway=True)


def bash(command: Any, **more: Any) -> Call:
    return tool("run_shell_command", command=command, **more)


def read(path: Path | str) -> Call:
    return tool("read_file", file_path=str(path))


def write(path: Path | str, content: str = "overwritten") -> Call:
    return tool("write_file", file_path=str(path), content=content)


def edit(path: Path | str, old: str, new: str) -> Call:
    return tool(
        "replace", file_path=str(path), old_string=old, new_string=new, instruction="Change it."
    )


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Files that a session must not reach."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    return folder


@pytest.fixture
def workspace(cli_session: CliSession, outside: Path) -> CliSession:
    """A butler's folder with a script, notes, and links that lead out."""
    cwd = cli_session.cwd
    (cwd / "AGENTS.md").write_text("Notes.\n")
    (cwd / "skills" / "errand").mkdir(parents=True)
    (cwd / "skills" / "errand" / "run.py").write_text("import sys\nprint('RAN', sys.argv[1:])\n")
    (cwd / "skills" / "errand" / "away.py").symlink_to(outside / "evil.py")
    (cwd / "away").symlink_to(outside)
    (cwd / "away.txt").symlink_to(outside / "secret.txt")
    commands = ("ls skills/", SCRIPT, "python3 skills/errand/away.py")
    cli_session.grants = Grants(Access.WORKSPACE, (cwd,), (cwd / "AGENTS.md",), commands)
    return cli_session


async def attempt(cli_session: CliSession, *calls: Call) -> SessionResult:
    cli_session.model.script = [*(Use(call) for call in calls), Say("That is all.")]
    return await cli_session.invoke()


def everything(*folders: Path) -> dict[str, str]:
    """Return the files on the disk with their content, without caches of the interpreter."""
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_text()
        for folder in folders
        for path in folder.rglob("*")
        if (path.is_symlink() or path.is_file()) and "__pycache__" not in path.parts
    }


async def assert_all_refused(cli_session: CliSession, outside: Path, *calls: Call) -> None:
    before = everything(cli_session.cwd, outside)
    result = await attempt(cli_session, *calls)
    assert everything(cli_session.cwd, outside) == before
    assert len(cli_session.model.turns) == len(calls) + 1
    assert not any(SECRET in answer for answer in cli_session.model.turns[-1].results)
    assert len(result.denials) == len(calls), result.denials
    assert result.outcome is Outcome.DENIED
    assert result.error


async def test_granted_actions_work(workspace: CliSession) -> None:
    notes = workspace.cwd / "AGENTS.md"
    result = await attempt(
        workspace,
        bash("ls skills/"),
        bash(SCRIPT, description='Runs the "errand".'),
        read(notes),
        write(notes, "Fresh notes.\n"),
        write("AGENTS.md", "Fresh notes again.\n"),
        edit(notes, "Fresh", "Better"),
        read("butler.toml"),
        tool("list_directory", dir_path=str(workspace.cwd / "skills")),
        Call("write", {"text": "milk"}),
    )
    assert (result.outcome, result.error, result.denials) == (Outcome.OK, None, ())
    listed, ran, *_ = workspace.model.turns[-1].results
    assert "errand" in listed
    assert "RAN []" in ran
    assert "[modules.bench]" in workspace.model.turns[-1].results[6]
    assert notes.read_text() == "Better notes again.\n"
    assert await workspace.tester.count("entries") == 1


async def test_only_these_tools_are_on_offer(workspace: CliSession) -> None:
    await attempt(workspace, bash("ls skills/"))
    offered = workspace.model.turns[0].offered
    assert {name for name in offered if not name.startswith("mcp_tester_")} == {
        "list_directory",
        "read_file",
        "replace",
        "run_shell_command",
        "write_file",
    }


async def test_commands_without_a_grant_are_refused(workspace: CliSession, outside: Path) -> None:
    await assert_all_refused(
        workspace,
        outside,
        bash(f"touch {outside}/made"),
        bash("ls"),
        bash("cat butler.toml"),
        bash("git status"),
        bash("ls skills"),
        bash("ls skills/ -la"),
        bash(f"cat {outside}/secret.txt"),
        bash("env"),
        bash(f"cd {outside} && ls skills/"),
        bash("python3 skills/errand/away.py"),  # granted by its name, and a link out
        bash("ls skills/", dir_path=str(outside)),
        bash("ls skills/", dir_path="skills"),
        bash(SCRIPT, is_background=True),
    )


async def test_other_spellings_of_a_script_are_refused(
    workspace: CliSession, outside: Path
) -> None:
    await assert_all_refused(
        workspace,
        outside,
        bash("python3 ../outside/evil.py"),
        bash("python3 skills/../../outside/evil.py"),
        bash("python3 skills/errand/../errand/run.py"),
        bash(f"python3 {outside}/evil.py"),
        bash("python3 away/evil.py"),
        bash("python3  skills/errand/run.py"),
        bash(f" {SCRIPT}"),
        bash(f"{SCRIPT} "),
        bash(f"PYTHONPATH={outside} {SCRIPT}"),
        bash(f"timeout 5 {SCRIPT}"),
        bash(f"bash -c '{SCRIPT}'"),
        bash(f"{SCRIPT} $HOME"),
        bash(f"{SCRIPT} extra"),
    )


@pytest.mark.parametrize("command", ["ls skills/", SCRIPT])
async def test_chained_commands_are_refused(
    workspace: CliSession, outside: Path, command: str
) -> None:
    made = outside / "made"
    ways = (
        f"; touch {made}",
        f" && touch {made}",
        f" || touch {made}",
        f" | tee {made}",
        f" & touch {made}",
        f"\ntouch {made}",
        f" $(touch {made})",
        f" `touch {made}`",
        f" <(touch {made})",
        f" > {made}",
        " >> AGENTS.md",
        " < away.txt",
    )
    await assert_all_refused(workspace, outside, *(bash(f"{command}{more}") for more in ways))


async def test_reading_outside_is_refused(workspace: CliSession, outside: Path) -> None:
    await assert_all_refused(
        workspace,
        outside,
        read(outside / "secret.txt"),
        read("../outside/secret.txt"),
        read("away.txt"),
        read("away/secret.txt"),
        read("/etc/passwd"),
        read("/proc/self/environ"),
        read(workspace.private / "home" / ".gemini" / "settings.json"),
        tool("list_directory", dir_path="away"),
        tool("list_directory", dir_path=".."),
        tool("glob", pattern="../outside/*"),
        tool("grep_search", pattern=SECRET, dir_path="away"),
        tool("read_many_files", include=["away.txt"]),
    )


async def test_prompt_that_names_a_link_outside_reads_nothing(workspace: CliSession) -> None:
    """The CLI puts what a prompt names as @file into it: inside the folder, which may be read."""
    await workspace.invoke("Look at @away.txt @away/secret.txt @../outside/secret.txt please.")
    assert not any(SECRET in turn.text for turn in workspace.model.turns)


async def test_writing_other_files_is_refused(workspace: CliSession, outside: Path) -> None:
    cwd = workspace.cwd
    spoof = '\x00"file_path":"AGENTS.md"\x00'
    await assert_all_refused(
        workspace,
        outside,
        write(cwd / "made.txt"),
        write(cwd / "agents.md"),
        write(cwd / "skills" / "AGENTS.md"),
        write("skills/../AGENTS.md"),
        write(cwd / "away" / "AGENTS.md"),
        write(outside / "AGENTS.md"),
        write("butler.toml", spoof),
        write(cwd / ".gemini" / "settings.json", "{}"),
        write(workspace.private / "home" / ".gemini" / "settings.json", "{}"),
        edit("butler.toml", "tester", "other"),
        edit("skills/errand/run.py", "import sys", "import os"),
        tool("save_memory", fact="x"),
    )


async def test_notes_that_are_a_link_are_not_written(workspace: CliSession, outside: Path) -> None:
    notes = workspace.cwd / "AGENTS.md"
    notes.unlink()
    notes.symlink_to(workspace.cwd / "butler.toml")
    await assert_all_refused(workspace, outside, write(notes), write("AGENTS.md"))
