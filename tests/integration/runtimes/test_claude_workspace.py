"""Access of a session of Claude Code at the level ``workspace``, attacked by its model.

Every refusal is shown three times: nothing on the disk has changed, the model was told no (and never got
what it was after), and the session's record names the attempt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.domain.session import Access, Outcome, SessionResult
from butlers.runtimes.base import Grants
from butlers.runtimes.claude_code import command as permissions
from support.cli_session import CliSession
from support.clis import CLAUDE
from support.fake_model import Call, Say, Use

pytestmark = pytest.mark.parametrize("cli", [CLAUDE], indirect=True, ids=["claude-code"])

SECRET = "PERIWINKLE"
SCRIPT = "python3 skills/errand/run.py"


def bash(command: str, **more: object) -> Call:
    return Call("Bash", {"command": command, **more}, anyway=True)


def read(path: Path | str) -> Call:
    return Call("Read", {"file_path": str(path)}, anyway=True)


def write(path: Path | str, content: str = "overwritten") -> Call:
    return Call("Write", {"file_path": str(path), "content": content}, anyway=True)


def edit(path: Path | str, old: str, new: str) -> Call:
    arguments = {"file_path": str(path), "old_string": old, "new_string": new}
    return Call("Edit", arguments, anyway=True)


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
        for path in _files(folder)
    }


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if (path.is_symlink() or path.is_file()) and "__pycache__" not in path.parts:
            yield path


async def assert_all_refused(cli_session: CliSession, outside: Path, *calls: Call) -> None:
    before = everything(cli_session.cwd, outside)
    result = await attempt(cli_session, *calls)
    assert everything(cli_session.cwd, outside) == before
    assert len(cli_session.model.turns) == len(calls) + 1
    assert not any(SECRET in answer for answer in cli_session.model.turns[-1].results)
    assert [call.ok for call in result.tool_calls] == [False] * len(calls)
    assert len(result.denials) == len(calls), result.denials
    assert result.outcome is Outcome.DENIED
    assert result.error


async def test_granted_actions_work(workspace: CliSession) -> None:
    notes = workspace.cwd / "AGENTS.md"
    result = await attempt(
        workspace,
        bash("ls skills/"),
        bash(SCRIPT),
        bash(f"{SCRIPT} --count=3 'milk & eggs; ok' Grüße"),
        read(notes),
        write(notes, "Fresh notes.\n"),
        edit(notes, "Fresh", "Better"),
        read("butler.toml"),
        Call("write", {"text": "milk"}),
    )
    assert (result.outcome, result.error, result.denials) == (Outcome.OK, None, ())
    assert all(call.ok for call in result.tool_calls)
    listed, plain, with_arguments, *_ = workspace.model.turns[-1].results
    assert "errand" in listed
    assert plain.startswith("RAN []")
    assert with_arguments.startswith("RAN ['--count=3', 'milk & eggs; ok', 'Grüße']")
    assert notes.read_text() == "Better notes.\n"
    assert await workspace.tester.count("entries") == 1


async def test_notes_that_are_not_there_yet_can_be_made(workspace: CliSession) -> None:
    notes = workspace.cwd / "AGENTS.md"
    notes.unlink()
    result = await attempt(workspace, write(notes, "First notes.\n"))
    assert result.outcome is Outcome.OK
    assert notes.read_text() == "First notes.\n"


async def test_only_these_tools_are_on_offer(workspace: CliSession) -> None:
    await attempt(workspace, bash("ls skills/"))
    own = {
        name for name in workspace.model.turns[0].offered if not name.startswith("mcp__tester__")
    }
    assert own == {"Bash", "Edit", "Read", "Write"}


async def test_commands_without_a_grant_are_refused(workspace: CliSession, outside: Path) -> None:
    await assert_all_refused(
        workspace,
        outside,
        bash(f"touch {outside}/made"),
        bash("touch made"),
        bash("ls"),  # the CLI itself would let these three pass
        bash("cat butler.toml"),
        bash("git status"),
        bash("ls skills"),
        bash("ls skills/ -la"),
        bash(f"ls {outside}"),
        bash(f"cat {outside}/secret.txt"),
        bash("cat away.txt"),
        bash("env"),
        bash('python3 -c \'open("made", "w")\''),
        bash(f"cd {outside} && ls skills/"),
    )


async def test_script_that_links_outside_does_not_run(workspace: CliSession, outside: Path) -> None:
    """Though it was granted by its name."""
    await assert_all_refused(workspace, outside, bash("python3 skills/errand/away.py"))


async def test_other_spellings_of_a_script_are_refused(
    workspace: CliSession, outside: Path
) -> None:
    await assert_all_refused(
        workspace,
        outside,
        bash("python3 ../outside/evil.py"),
        bash("python3 skills/../../outside/evil.py"),
        bash("python3 skills/errand/../errand/run.py"),
        bash("python3 skills/errand/run.py/../away.py"),
        bash(f"python3 {outside}/evil.py"),
        bash("python3 away/evil.py"),
        bash("python3 skills/*/away.py"),
        bash("python3  skills/errand/run.py"),
        bash(" python3 skills/errand/run.py"),
        bash("python skills/errand/run.py"),
        bash(f"PYTHONPATH={outside} {SCRIPT}"),
        bash(f"timeout 5 {SCRIPT}"),
        bash(f"{SCRIPT} ../../outside/secret.txt"),
        bash(f"{SCRIPT} {outside}/secret.txt"),
        bash(f"{SCRIPT} '{outside}/secret.txt'"),
        bash(f"{SCRIPT} $HOME"),
        bash(f"{SCRIPT} ~"),
        bash(f"{SCRIPT} *"),
    )


async def test_chained_commands_are_refused(workspace: CliSession, outside: Path) -> None:
    made = outside / "made"
    await assert_all_refused(
        workspace,
        outside,
        *(
            bash(f"{command}{more}")
            for command in (SCRIPT, "ls skills/")
            for more in (
                f"; touch {made}",
                f" ; touch {made}",
                f" && touch {made}",
                f" || touch {made}",
                f" | tee {made}",
                f" & touch {made}",
                f"\ntouch {made}",
                f" \\\n; touch {made}",
                f" $(touch {made})",
                f" `touch {made}`",
                f' "$(touch {made})"',
                f" <(touch {made})",
                f" ${{x:=`touch {made}`}}",
                f" 'a'$(touch {made})'b'",
                f" > {made}",
                f" >> {made}",
                " > made",
                " >> AGENTS.md",
                " 2>made",
                " < away.txt",
            )
        ),
    )


async def test_reading_outside_is_refused(workspace: CliSession, outside: Path) -> None:
    await assert_all_refused(
        workspace,
        outside,
        read(outside / "secret.txt"),
        read(f"{workspace.cwd}/../outside/secret.txt"),
        read("../outside/secret.txt"),
        read(workspace.cwd / "away.txt"),
        read(workspace.cwd / "away" / "secret.txt"),
        read("/etc/passwd"),
        read(workspace.private / "mcp.json"),
        read(workspace.private / "gate.json"),
        read("~/.claude.json"),
    )


async def test_writing_other_files_is_refused(workspace: CliSession, outside: Path) -> None:
    cwd = workspace.cwd
    await assert_all_refused(
        workspace,
        outside,
        write(cwd / "made.txt"),
        write(cwd / "agents.md"),  # the CLI's own rules do not tell it from AGENTS.md
        write(cwd / "skills" / "AGENTS.md"),
        write(cwd / "away" / "made.txt"),
        write(cwd / "away" / "AGENTS.md"),
        write(outside / "AGENTS.md"),
        write(f"{cwd}/../outside/AGENTS.md"),
        write(cwd / ".claude" / "settings.json", '{"permissions": {"allow": ["Bash(*)"]}}'),
        write(cwd / ".mcp.json"),
        write(workspace.private / "home" / ".bashrc", f"touch {outside}/made"),
    )


async def test_unreadable_file_cannot_be_overwritten(workspace: CliSession, outside: Path) -> None:
    """The CLI lets no file be written before it was read, which comes before any question of rights."""
    files = [workspace.private / name for name in ("gate.json", "settings.json", "mcp.json")]
    files += [workspace.cwd / "butler.toml"]
    result = await attempt(workspace, *(write(file, "{}") for file in files))
    assert not any(call.ok for call in result.tool_calls)
    assert all(file.read_text() != "{}" for file in files)
    assert result.outcome is Outcome.OK  # refused by a rule of the tool, not by its access level


async def test_changed_script_does_not_run(workspace: CliSession, outside: Path) -> None:
    script = workspace.cwd / "skills" / "errand" / "run.py"
    before = everything(workspace.cwd, outside)
    evil = f"open({str(outside / 'made')!r}, 'w')\n"
    result = await attempt(
        workspace, read(script), edit(script, "import sys", evil), write(script, evil), bash(SCRIPT)
    )
    assert everything(workspace.cwd, outside) == before
    assert [call.ok for call in result.tool_calls] == [True, False, False, True]
    assert workspace.model.turns[-1].results[-1].startswith("RAN []")
    assert len(result.denials) == 2
    assert result.outcome is Outcome.OK  # it did what it may


async def test_notes_that_link_outside_are_not_written(
    workspace: CliSession, outside: Path
) -> None:
    notes = workspace.cwd / "AGENTS.md"
    notes.unlink()
    notes.symlink_to(outside / "new.txt")
    await assert_all_refused(workspace, outside, read(notes), write(notes))


async def test_background_commands_are_refused(workspace: CliSession) -> None:
    result = await attempt(workspace, bash(SCRIPT, run_in_background=True))
    assert not any(call.ok for call in result.tool_calls)
    assert "RAN" not in workspace.model.turns[-1].results[0]


async def test_broken_gate_refuses_the_call(
    workspace: CliSession, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "interpreter", lambda: "/no/such/python")
    (workspace.cwd / "AGENTS.md").unlink()
    await assert_all_refused(
        workspace, outside, bash(SCRIPT), bash("ls"), write(workspace.cwd / "AGENTS.md")
    )


async def test_hanging_gate_refuses_the_call(
    workspace: CliSession, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CLI itself would let the call through when its patience with a hook is over."""
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 3600\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(permissions, "interpreter", lambda: str(hanging))
    monkeypatch.setattr(permissions, "GATE_S", 0.5)
    (workspace.cwd / "AGENTS.md").unlink()
    await assert_all_refused(
        workspace, outside, bash(f"{SCRIPT} argument"), write(workspace.cwd / "AGENTS.md")
    )
