"""The skills of a butler's own folder, as a session of Claude Code finds, reads and runs them by itself."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support import npm
from support.cli_butler import CliButler
from support.cli_session import PATH
from support.clis import CLAUDE
from support.fake_model import Call, FakeModel, Quote, Say, Use
from support.skills import write_files

TOLD = """You are the tester.

## Skills
- morning-briefing: Generates a daily summary of health metrics
- log-measurement: Records a new health data point
"""
BRIEFING = "# Morning briefing\n\nSums the night up.\n\n## Steps\n\nCall the `write` tool with the summary.\n"
GREETING = "good-morning-everybody"

# What the CLI adds to a result by itself.
REMINDER = "<system-reminder>"

OpenFolder = Callable[..., AbstractAsyncContextManager[CliButler]]


def bash(command: str) -> Use:
    return Use(Call("Bash", {"command": command}))


def read(butler: CliButler, path: str) -> Use:
    return Use(Call("Read", {"file_path": str(butler.directory / path)}))


def results(butler: CliButler) -> list[str]:
    return [said.partition(REMINDER)[0].strip() for said in butler.model.turns[-1].results]


@pytest.fixture
def open_folder(
    offline: None,
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    model: FakeModel,
    prepared: None,
) -> OpenFolder:
    """A butler whose folder has just these files below skills/, and a ``python`` on its PATH."""

    @asynccontextmanager
    async def opened(files: dict[str, str], instructions: str = TOLD) -> AsyncIterator[CliButler]:
        tester = CliButler.create(
            tmp_path, home, key, provisioner, database_name, cli=CLAUDE, model=model
        )
        config = tester.directory / "butler.toml"
        config.write_text(config.read_text().replace("optional = [", 'optional = ["GREETING", '))
        shutil.rmtree(tester.directory / "skills")
        (tester.directory / "skills").mkdir()
        write_files(tester.directory / "skills", {**files})
        (tester.directory / "CLAUDE.md").write_text(instructions)
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(sys.executable)
        path = f"{programs}:{npm.installed('clis')}:{PATH}"
        async with tester.running(PATH=path, GREETING=GREETING):
            yield tester

    return opened


@pytest.mark.scenario("S000-19", "S000-21")
async def test_skills_that_the_instructions_list_are_known_read_and_followed(
    open_folder: OpenFolder,
) -> None:
    files = {
        "morning-briefing/SKILL.md": BRIEFING,
        "log-measurement/SKILL.md": "# Log\n\nLog it.\n",
    }
    async with open_folder(files) as butler:
        butler.model.script = [
            read(butler, "skills/morning-briefing/SKILL.md"),
            read(butler, "skills/log-measurement/SKILL.md"),
            Use("write", text="the summary"),
            Say("Briefed."),
        ]
        ended = await butler.trigger("brief me")
        first = butler.model.turns[0]
        assert "morning-briefing: Generates a daily summary of health metrics" in first.system
        assert "log-measurement: Records a new health data point" in first.system
        assert "Call the `write` tool" not in first.text, "read before it is done, not given"
        briefing, log, _written = results(butler)
        assert "Call the `write` tool with the summary." in briefing
        assert "Log it." in log
        assert (ended["outcome"], ended["output"]) == ("ok", "Briefed.")
        assert [row["text"] for row in await butler.rows("SELECT text FROM entries")] == [
            "the summary"
        ]


@pytest.mark.scenario("S000-20", "S000-22")
async def test_skills_are_found_by_listing_the_folder(
    open_folder: OpenFolder,
) -> None:
    files = {
        "morning-briefing/SKILL.md": BRIEFING,
        "inbox-triage/SKILL.md": "# Triage\n\nSort it.\n",
        "cleanup-old-data/SKILL.md": "# Clean up\n\nRun the script.\n",
        "cleanup-old-data/run.py": "print('cleaned')\n",
    }
    async with open_folder(files, "You are the tester. Skills: morning-briefing.") as butler:
        butler.model.script = [
            bash("ls skills/"),
            *(
                read(butler, f"skills/{name}/SKILL.md")
                for name in ("inbox-triage", "cleanup-old-data")
            ),
            bash("python skills/cleanup-old-data/run.py"),
            Say("Done."),
        ]
        ended = await butler.trigger()
        assert "cleanup-old-data" not in butler.model.turns[0].system
        listing, triage, cleanup, ran = results(butler)
        assert listing.split() == ["cleanup-old-data", "inbox-triage", "morning-briefing"]
        assert "Sort it." in triage
        assert "Run the script." in cleanup
        assert "cleaned" in ran
        assert ended["outcome"] == "ok"


@pytest.mark.scenario("S000-23")
async def test_empty_skill_folder_has_no_scripts_to_run(open_folder: OpenFolder) -> None:
    async with open_folder({}) as butler:
        butler.model.script = [bash("ls skills/"), Say("There are none.")]
        ended = await butler.trigger()
        (listing,) = results(butler)
        assert listing in ("", "(Bash completed with no output)")
        offered = butler.model.turns[0].offered
        assert any("skill_create" in name for name in offered), "it may make its first one"
        assert [call["tool"] for call in ended["tool_calls"]] == ["Bash"]
        assert (ended["outcome"], ended["output"]) == ("ok", "There are none.")


@pytest.mark.scenario("S000-24", "S000-25", "S000-26")
async def test_scripts_run_in_the_butlers_folder_with_the_sessions_variables(
    open_folder: OpenFolder,
) -> None:
    files = {
        "morning-briefing/SKILL.md": BRIEFING,
        "morning-briefing/run.py": (
            "import os\nprint('python', os.getcwd(), os.environ['TRACEPARENT'],"
            " os.environ['GREETING'])\n"
        ),
        "weekly/SKILL.md": "# Weekly\n",
        "weekly/run.sh": 'echo "shell $(pwd) $TRACEPARENT $GREETING"\n',
    }
    async with open_folder(files) as butler:
        butler.model.script = [
            bash("python skills/morning-briefing/run.py"),
            bash("bash skills/weekly/run.sh"),
            Say("Done."),
        ]
        ended = await butler.trigger()
        folder = str(butler.directory)
        for said, kind in zip(results(butler), ("python", "shell"), strict=True):
            ran_as, where, trace, greeting = said.split()
            assert (ran_as, where, greeting) == (kind, folder, GREETING)
            assert len(trace.split("-")[1]) == 32
        assert [call["arguments"]["command"] for call in ended["tool_calls"]] == [
            "python skills/morning-briefing/run.py",
            "bash skills/weekly/run.sh",
        ]


@pytest.mark.scenario("S000-27", "S000-30", "S000-31")
async def test_script_output_failure_and_arguments_reach_the_session(
    open_folder: OpenFolder,
) -> None:
    files = {
        "tasks/SKILL.md": "# Tasks\n",
        "tasks/run.py": (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('--date', required=True)\n"
            "print('Summary:', parser.parse_args().date, '3 tasks completed, 1 overdue')\n"
        ),
        "broken/SKILL.md": "# Broken\n",
        "broken/run.py": "import sys\nprint('no such calendar', file=sys.stderr)\nsys.exit(7)\n",
    }
    summary = "Summary: 2026-02-09 3 tasks completed, 1 overdue"
    async with open_folder(files) as butler:
        butler.model.script = [
            bash("python skills/tasks/run.py --date 2026-02-09"),
            bash("python skills/broken/run.py"),
            Use("write", text=summary),
            Quote("Summary: .* overdue"),
        ]
        ended = await butler.trigger()
        said, failed, _written = results(butler)
        assert said == summary
        assert "no such calendar" in failed
        assert "7" in failed, "the exit code"
        assert (ended["outcome"], ended["output"]) == ("ok", summary)
        (row,) = await butler.rows("SELECT text FROM entries")
        assert row["text"] == summary
