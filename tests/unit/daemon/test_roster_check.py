"""The conventions of the roster: the shipped one follows them, and each violation is reported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.config.settings import Settings
from butlers.daemon.roster_check import check_roster
from butlers.daemon.roster_check.butler import load_roster_butler
from butlers.daemon.roster_check.files import PORTS
from butlers.daemon.roster_check.tools import BYTES_PER_TOKEN, MAX_TOKENS, MAX_TOOLS
from butlers.domain.diagnostic import Diagnostic, Severity

ROOT = Path(__file__).resolve().parents[3]
ROSTER = ROOT / "roster"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "home")


@pytest.fixture
def roster(tmp_path: Path) -> Path:
    """A copy of the shipped roster with the butler general alone."""
    copy = tmp_path / "roster"
    for name in ("general", "shared"):
        shutil.copytree(ROSTER / name, copy / name, symlinks=True)
    return copy


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> list[Diagnostic]:
    return check_roster(ROSTER, Settings(tmp_path_factory.mktemp("home")))


@pytest.mark.scenario("S001-18", "S001-20", "S001-21", "S001-33", "S001-34", "S001-43", "S001-44")
@pytest.mark.scenario("S001-50", "S001-51")
def test_shipped_roster_follows_its_conventions(shipped: list[Diagnostic]) -> None:
    assert [str(one) for one in shipped] == []


@pytest.mark.scenario("S001-45")
def test_manifestos_state_the_scope_and_where_else_things_belong(
    shipped: list[Diagnostic],
) -> None:
    assert not [one for one in shipped if one.code == "roster-manifesto"]
    domains = ("general", "relationship", "health", "finance", "travel")
    for name in domains:
        text = " ".join((ROSTER / name / "MANIFESTO.md").read_text().split())
        inside, _, outside = text.partition("Out of scope")
        assert len(inside) > 200, f"{name} does not say what it is for"
        others = {other.capitalize() for other in domains if other != name} | {"specialist butlers"}
        assert any(other in outside for other in others), f"{name} names no other butler"
    rule = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    assert "A new tool or feature is first compared with the `MANIFESTO.md` of its butler" in rule
    assert "it belongs to another butler, or the manifesto is amended first" in rule


@pytest.mark.scenario("S001-56")
def test_ports_are_those_of_the_convention(settings: Settings) -> None:
    folders = [folder for folder in ROSTER.iterdir() if (folder / "butler.toml").is_file()]
    ports = {folder.name: load_roster_butler(folder, settings).config for folder in folders}
    assert {name: config.port for name, config in ports.items() if config} == {
        name: PORTS[name] for name in ports
    }
    assert len(set(PORTS.values())) == 7
    assert all(40100 <= port < 40200 for port in PORTS.values())


def test_tools_of_general_are_within_the_budget(settings: Settings) -> None:
    tools = load_roster_butler(ROSTER / "general", settings).own_tools
    assert 15 <= len(tools) <= MAX_TOOLS
    assert sum(tool.size for tool in tools.values()) // BYTES_PER_TOKEN <= MAX_TOKENS


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def removed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


PREP = "skills/eod-tomorrow-prep/SKILL.md"
NOTES = "skills/notes/SKILL.md"


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (removed("MANIFESTO.md"), "roster-file", "MANIFESTO.md is missing"),
        (removed("CLAUDE.md"), "roster-file", "CLAUDE.md is missing"),
        (replaced("CLAUDE.md", "@AGENTS.md", "Be nice."), "roster-claude-md", "not just"),
        (replaced("AGENTS.md", "@../shared/AGENTS.md\n", ""), "roster-agents-md", "first line"),
        (replaced("AGENTS.md", "# Notes to self", ""), "roster-agents-md", "Notes to self"),
        (replaced("AGENTS.md", "## Skills", "word " * 600), "roster-agents-md", "600 words"),
        (replaced("AGENTS.md", "## Skills", "1. a\n2. b\n3. c\n"), "roster-agents-md", "procedure"),
        (replaced("AGENTS.md", "`note_add`", "`note_ad`"), "roster-mention", "note_ad"),
        (replaced("MANIFESTO.md", "Out of scope", "Not"), "roster-manifesto", "out of scope"),
        (replaced("butler.toml", "40101", "40103"), "roster-port", "40103"),
        (replaced("butler.toml", 'name = "general"', 'name = "other"'), "roster-name", "other"),
        (replaced("butler.toml", 'schema = "general"', 'schema = "x"'), "roster-schema", "schema"),
        (replaced("butler.toml", "[modules.general]\n", ""), "roster-module", "not declared"),
        (replaced("butler.toml", "the eod-tomorrow-prep", "a"), "roster-schedule", "no skill"),
        (replaced("butler.toml", 'check = "has_', 'check = "had_'), "roster-schedule", "unknown job"),
        (replaced(PREP, 'intent="send"', "it"), "roster-schedule", "sends nothing"),
        (replaced(PREP, "nothing", "little"), "roster-schedule", "no-op"),
        (replaced(NOTES, "`note_add`", '`note_add(words="x")`'), "roster-mention", "no argument 'words'"),
        (replaced(NOTES, "`note_add`", '`note_put(text="x")`'), "roster-mention", "is no tool"),
        (removed("skills/butler-memory"), "roster-shared-skill", "butler-memory"),
        (replaced("tools/notes.py", "from butlers.sdk", "import butlers.tools.state\nfrom butlers.sdk"),
         "roster-import", "butlers.tools.state"),
        (replaced("skills/notes/reflex.toml", 'tool = "note_add"', 'tool = "note_ad"'),
         "roster-reflex-tool", "unknown tool note_ad"),
        (replaced("skills/notes/reflex.toml", "arguments.tag =", "arguments.label ="),
         "roster-reflex-tool", "unknown argument 'label'"),
        (replaced("skills/notes/reflex.toml", '"pinging", ', ""), "roster-reflex", "2 near misses"),
    ],
)  # fmt: skip
def test_violation_is_reported(
    roster: Path, settings: Settings, change: Callable[[Path], object], code: str, words: str
) -> None:
    change(roster / "general")
    found = check_roster(roster, settings)
    assert [one for one in found if one.code == code and words in one.message], found


def test_two_butlers_with_one_port_and_one_message_are_reported(
    roster: Path, settings: Settings
) -> None:
    shutil.copytree(roster / "general", roster / "copy", symlinks=True)
    replaced("butler.toml", 'name = "general"', 'name = "copy"')(roster / "copy")
    codes = {one.code for one in check_roster(roster, settings)}
    assert {"roster-port", "reflex-conflict"} <= codes


def test_command_prints_json_and_exits_with_1_on_an_error(roster: Path, tmp_path: Path) -> None:
    (roster / "general" / "MANIFESTO.md").unlink()
    ended = subprocess.run(
        [sys.executable, "-m", "butlers.cli.main", "roster", "check", str(roster), "--json"],
        env={"PYTHONPATH": str(ROOT / "src"), "BUTLERS_HOME": str(tmp_path / "home"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    found = json.loads(ended.stdout)
    assert [one["code"] for one in found if one["severity"] == Severity.ERROR] == ["roster-file"]
