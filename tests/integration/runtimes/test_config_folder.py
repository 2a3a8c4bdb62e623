"""A butler's folder as its sessions see it: the system prompt, the notes and the skills, on a real CLI."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.cli_butler import CliButler, OpenCliButler
from support.clis import CLAUDE, Cli
from support.fake_model import Call, Say, Use

pytestmark = pytest.mark.parametrize("cli", [CLAUDE], indirect=True, ids=["claude-code"])

NOTES = "User prefers metric units for health data"


@pytest.fixture
async def butler(open_cli_butler: OpenCliButler, cli: Cli) -> AsyncIterator[CliButler]:
    async with open_cli_butler(cli) as butler:
        yield butler


def folder(butler: CliButler) -> Path:
    return butler.directory


def read(butler: CliButler, name: str) -> Use:
    return Use(Call("Read", {"file_path": str(folder(butler) / name)}))


def write(butler: CliButler, name: str, text: str) -> Use:
    return Use(Call("Write", {"file_path": str(folder(butler) / name), "content": text}))


def system(butler: CliButler) -> str:
    """Return the system prompt of the last turn."""
    blocks: list[dict[str, Any]] = butler.model.turns[-1].body["system"]
    return "\n".join(block["text"] for block in blocks)


@pytest.mark.scenario("S000-02")
async def test_the_working_directory_is_the_butlers_own(butler: CliButler) -> None:
    (folder(butler) / "MANIFESTO.md").write_text("We keep what is tested.")
    butler.model.script = [
        read(butler, "MANIFESTO.md"),
        read(butler, "butler.toml"),
        Use(Call("Bash", {"command": "ls skills/"})),
        Say("Seen."),
    ]
    ended = await butler.trigger()
    assert (ended["outcome"], ended["output"]) == ("ok", "Seen.")
    manifesto, config, listing = butler.model.turns[-1].results
    assert "We keep what is tested." in manifesto
    assert 'name = "tester"' in config
    assert listing.split()[0] == "bench"


@pytest.mark.scenario("S000-03")
@pytest.mark.scenario("S000-04")
@pytest.mark.scenario("S000-07")
async def test_the_system_prompt_is_the_file(butler: CliButler) -> None:
    text = (
        "You are the Health butler. You track daily health metrics.\n\n"
        "## Skills\n- morning-briefing: Generates a daily health summary\n"
        "- log-measurement: Records a new health measurement\n\n"
        "Use the state_set tool to persist data between sessions.\n"
        "Always consult AGENTS.md before starting a task.\n"
    )
    (folder(butler) / "CLAUDE.md").write_text(text)
    butler.model.script = [Use("state_set", key="seen", value=True), Say("Done.")]
    ended = await butler.trigger()
    assert ended["success"]
    assert text in system(butler)
    body = json.dumps(butler.model.turns[0].body)
    assert body.count("You track daily health metrics.") == 1, "nothing is told twice"
    async with butler.owner() as owner:
        assert (await owner.call("state_get", {"key": "seen"}))["value"] is True


@pytest.mark.scenario("S000-05")
@pytest.mark.scenario("S000-06")
@pytest.mark.parametrize("text", [None, ""])
async def test_without_a_text_the_butler_is_named(butler: CliButler, text: str | None) -> None:
    file = folder(butler) / "CLAUDE.md"
    assert not file.exists()
    if text is not None:
        file.write_text(text)
    butler.model.script = [Say("Here.")]
    assert (await butler.trigger())["output"] == "Here."
    assert "You are the tester butler." in system(butler)


@pytest.mark.scenario("S000-08")
@pytest.mark.scenario("S000-10")
async def test_notes_are_read_by_hand_and_are_not_in_the_prompt(butler: CliButler) -> None:
    (folder(butler) / "CLAUDE.md").write_text("You are Tester.")
    (folder(butler) / "AGENTS.md").write_text(NOTES)
    butler.model.script = [read(butler, "AGENTS.md"), Say("Read.")]
    assert (await butler.trigger())["success"]
    assert NOTES not in json.dumps(butler.model.turns[0].body)
    (seen,) = butler.model.turns[-1].results
    assert NOTES in seen


@pytest.mark.scenario("S000-09")
async def test_note_is_readable_in_the_next_session(butler: CliButler) -> None:
    note = "Morning briefings before 8am."
    (folder(butler) / "AGENTS.md").write_text("# Notes\n")
    butler.model.script = [
        read(butler, "AGENTS.md"),
        write(butler, "AGENTS.md", f"# Notes\n{note}\n"),
        Say("Noted."),
    ]
    first = await butler.trigger()
    assert (first["outcome"], first["error"]) == ("ok", None)
    assert (folder(butler) / "AGENTS.md").read_text() == f"# Notes\n{note}\n"
    butler.model.script = [read(butler, "AGENTS.md"), Say("Read.")]
    await butler.trigger()
    assert note in butler.model.turns[-1].results[0]


@pytest.mark.scenario("S000-11")
async def test_last_soul_edit_wins(butler: CliButler) -> None:
    notes = folder(butler) / "AGENTS.md"
    notes.write_text("# Notes\n")
    for text in ("the first\n", "the second\n"):
        butler.model.script = [
            read(butler, "AGENTS.md"),
            write(butler, "AGENTS.md", text),
            Say("Noted."),
        ]
        assert (await butler.trigger())["success"]
    assert notes.read_text() == "the second\n"


@pytest.mark.scenario("S000-12")
async def test_empty_notes_are_read_and_written(butler: CliButler) -> None:
    notes = folder(butler) / "AGENTS.md"
    notes.write_text("")
    butler.model.script = [
        read(butler, "AGENTS.md"),
        write(butler, "AGENTS.md", "A first note.\n"),
        Say("Noted."),
    ]
    ended = await butler.trigger()
    assert (ended["outcome"], ended["error"]) == ("ok", None)
    assert notes.read_text() == "A first note.\n"


async def test_message_cannot_write_notes(butler: CliButler) -> None:
    """A session of a message is sealed: the tools for that are not there."""
    notes = folder(butler) / "AGENTS.md"
    notes.write_text("# Notes\n")
    butler.model.script = [
        Use(Call("Write", {"file_path": str(notes), "content": "obey me"}, anyway=True)),
        Use(Call("Bash", {"command": "ls skills/"}, anyway=True)),
        Say("I could not."),
    ]
    await butler.run()
    assert notes.read_text() == "# Notes\n"
    assert {name for name in butler.model.turns[0].offered if not name.startswith("mcp__")} == set()
