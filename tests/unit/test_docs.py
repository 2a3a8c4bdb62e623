"""The documents are part of the product: what they name is there, and what is there they name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from butlers.cli.main import app
from butlers.config import settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda path: path.as_posix()
)
LOCKS = ("requirements.lock", "requirements-dev.lock")
SOURCES = ("src", "tests", "roster", "alembic", "benchmarks", "scripts", "docs", ".ci")
# In pieces, so that this file does not name what it forbids.
INDEX_HOSTS = ("pypi" + ".org", "npm" + "js", "files.python" + "hosted")

PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+)?|[\w-]+\.(?:md|toml|lock))`")
LINK = re.compile(r"\]\(([^)#:\s]+)\)")
NAMED_BY_THEIR_USERS = {
    "butlers/",  # where a person keeps butlers of their own
    "keys/",
    "data/",
    "prices.toml",
    "postgres/",
    "run/",
    "roster/",
    "butler.toml",
    "fleet.toml",
    "reflex.toml",
    "SKILL.md",
    "MANIFESTO.md",
    "CLAUDE.md",
    "AGENTS.md",
    "skills/",
    "modules/__init__.py",
}


def commands() -> Iterator[str]:
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        yield from (f"{name} {below}" for below in inner) if inner else (name,)


def variables() -> list[str]:
    source = Path(settings.__file__).read_text()
    found = set(re.findall(r'_value\(\w+, "([A-Z][A-Z_]+)"\)', source))
    return sorted(found - {"HOME"})


def text_files() -> Iterator[Path]:
    folders = (path for name in SOURCES for path in (ROOT / name).rglob("*"))
    for path in (*ROOT.iterdir(), *folders):
        if path.is_file() and "__pycache__" not in path.parts and "results" not in path.parts:
            yield path


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_has_a_row_in_the_readme(command: str) -> None:
    assert re.search(rf"^\| `butlers {command}\b", README, re.MULTILINE)


def test_the_readme_has_no_command_that_is_not_there() -> None:
    rows = re.findall(r"^\| `butlers ([a-z-]+(?: [a-z]+)?)", README, re.MULTILINE)
    assert sorted(rows) == sorted(commands())


@pytest.mark.parametrize("variable", variables())
def test_every_variable_is_documented(variable: str) -> None:
    for_tests = variable in ("BUTLERS_KILL_POINT", "BUTLERS_TEST_PACE")
    place = CONTRIBUTING if for_tests else README
    assert f"`{variable}" in place


def test_the_variables_were_found() -> None:
    assert {"BUTLERS_HOME", "DATABASE_URL", "BUTLERS_KILL_POINT"} <= set(variables())


@pytest.mark.parametrize("target", ["up", "test"])
def test_the_two_commands_of_the_readme_are_targets(target: str) -> None:
    assert re.search(rf"^make {target}\b", README, re.MULTILINE)
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_ci_runs_every_test_there_is() -> None:
    """What CI calls is `make test`, and that leaves nothing out."""
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    (line,) = re.findall(r"-m pytest\b(.*)", (ROOT / "Makefile").read_text())
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    given = f"{line} {options['addopts']}".split()
    assert not {"-k", "-m", "--ignore", "--ignore-glob", "--deselect", "-x"} & set(given)
    assert not any(word.startswith("tests") for word in given)
    assert options["testpaths"] == ["tests"]
    assert "norecursedirs" not in options
    ignoring = (path for path in (ROOT / "tests").rglob("conftest.py"))
    assert not any("collect_ignore" in path.read_text() for path in ignoring)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_in_a_document_exists(document: Path) -> None:
    named = set(PATH.findall(document.read_text())) - NAMED_BY_THEIR_USERS
    missing = [
        path
        for path in sorted(named)
        if not (ROOT / path).exists() and not (ROOT / "src/butlers" / path).exists()
    ]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    links = LINK.findall(document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_key_files_table_has_files_in_it() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().split("## Key files")[1]
    rows = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(rows) >= 25
    for row in rows:
        assert (ROOT / row).is_file() or (ROOT / "src/butlers" / row).is_file(), row


def test_every_layer_is_in_the_architecture() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [path.parent.name for path in (ROOT / "src/butlers").glob("*/__init__.py")]
    assert [name for name in sorted(packages) if f"`{name}/`" not in page] == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text()
    decisions = sorted(folder.glob("[0-9]*.md"))
    assert [path.name[:4] for path in decisions] == [
        f"{number:04}" for number in range(1, len(decisions) + 1)
    ]
    for path in decisions:
        title = path.read_text().splitlines()[0].removeprefix(f"# {path.name[:4]}. ")
        assert f"| [{path.name[:4]}]({path.name}) | {title} |" in listed
        for section in ("Status: ", "## Context", "## Decision", "## Consequences"):
            assert section in path.read_text(), f"{path.name} has no {section!r}"


def test_nothing_names_a_package_index() -> None:
    naming = [
        path.relative_to(ROOT).as_posix()
        for path in text_files()
        if any(host in path.read_text(errors="replace") for host in INDEX_HOSTS)
    ]
    assert naming == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_holds_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "--hash=sha256:" in text
