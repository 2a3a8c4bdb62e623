"""Documents agree with the code: commands, variables, paths, links, layers, phases and kill points."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer

from butlers.cli.main import app
from butlers.config import settings
from butlers.daemon.phases import PHASES
from butlers.runtimes.base import Runtime
from butlers.runtimes.reflex import NO_MODEL

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "butlers"
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda path: path.as_posix()
)
LOCKS = ("requirements.lock", "requirements-dev.lock")
SOURCES = ("src", "tests", "roster", "alembic", "benchmarks", "scripts", "docs", ".ci")
# In pieces, so that this file does not name what it forbids.
INDEX_HOSTS = ("pypi" + ".org", "npm" + "js", "files.python" + "hosted")

PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+)?|[\w-]+\.(?:md|toml|lock))`")
LINK = re.compile(r"\]\(([^)#:\s]+)\)")
FOR_TESTS = {"BUTLERS_KILL_POINT", "BUTLERS_TEST_PACE"}
PATHS_OF_USERS = {
    "usage/",
    "keys/",
    "data/",
    "prices.toml",
    "postgres/",
    "run/",
    "roster/",
    "edited/",
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


def section(document: str, heading: str) -> str:
    """Return the text below a heading, up to the next heading of the same or a higher level."""
    level = heading.index(" ")
    return re.split(rf"\n#{{1,{level}}} ", document.split(f"\n{heading}\n")[1])[0]


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


def write_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_documents_are_up_to_date() -> None:
    script = write_docs()
    for file, text in (
        (script.COMMANDS, script.commands_page()),
        (script.CONFIGURATION, script.configuration_page()),
        (script.SKILLS, script.skills_page()),
        (script.PICTURE, script.terminal_picture()),
    ):
        assert file.read_text() == text, f"run scripts/write_docs.py: {file.name} is out of date"


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_has_a_section_in_the_commands_page(command: str) -> None:
    assert f"\n## butlers {command}\n" in COMMANDS


def test_commands_in_the_readme_exist() -> None:
    rows = re.findall(r"^\| `butlers ([a-z-]+(?: [a-z]+)?)(?= [A-Z-]|`)", README, re.MULTILINE)
    used = section(README, "## Use")
    assert len(re.findall(r"^\| `butlers ", used, re.MULTILINE)) == 10
    assert set(rows) <= set(commands())


def test_the_reply_without_a_model_in_the_readme_is_that_of_the_code() -> None:
    assert f"`{NO_MODEL}`" in README


@pytest.mark.parametrize("variable", variables())
def test_every_variable_is_documented(variable: str) -> None:
    for_tests = variable in ("BUTLERS_KILL_POINT", "BUTLERS_TEST_PACE")
    place = CONTRIBUTING if for_tests else README
    assert f"`{variable}" in place


def test_the_variables_were_found() -> None:
    assert {"BUTLERS_HOME", "DATABASE_URL", "BUTLERS_KILL_POINT"} <= set(variables())


@pytest.mark.parametrize("target", ["up", "test"])
def test_make_targets_in_the_readme_exist(target: str) -> None:
    assert re.search(rf"^make {target}\b", README, re.MULTILINE)
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_ci_runs_every_test() -> None:
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    (line,) = re.findall(r"-m pytest\b(.*)", recipe[1])
    options = PYPROJECT["tool"]["pytest"]["ini_options"]
    given = f"{line} {options['addopts']}".split()
    assert not {"-k", "-m", "--ignore", "--ignore-glob", "--deselect", "-x"} & set(given)
    assert not any(word.startswith("tests") for word in given)
    assert options["testpaths"] == ["tests"]
    assert "norecursedirs" not in options
    ignoring = (path for path in (ROOT / "tests").rglob("conftest.py"))
    assert not any("collect_ignore" in path.read_text() for path in ignoring)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_in_a_document_exists(document: Path) -> None:
    named = set(PATH.findall(document.read_text())) - PATHS_OF_USERS
    missing = [
        path
        for path in sorted(named)
        # a person's own butlers, and the example of a new one
        if not path.startswith(("butlers/", "roster/garden/"))
        and not (ROOT / path).exists()
        and not (PACKAGE / path).exists()
    ]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_import_in_an_example_works(document: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL):
        code = ast.parse(textwrap.dedent(block), document.name)
        for node in ast.walk(code):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("butlers"):
                module = importlib.import_module(str(node.module))
                assert [one.name for one in node.names if not hasattr(module, one.name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_between_documents_works(document: Path) -> None:
    links = LINK.findall(document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_files_in_the_key_files_table_exist() -> None:
    table = section(ARCHITECTURE, "## Key files")
    rows = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(rows) >= 25
    for row in rows:
        assert (ROOT / row).is_file() or (PACKAGE / row).is_file(), row


def test_layers_table_equals_the_contract() -> None:
    (layers,) = [
        contract["layers"]
        for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
        if contract["name"] == "layers"
    ]
    contract = [{name for name in line.split(" | ") if not name.startswith("(")} for line in layers]
    rows = re.findall(r"^\| (`[^|]+?`) \|", section(ARCHITECTURE, "## Layers"), re.MULTILINE)
    assert [set(re.findall(r"`(\w+)/`", row)) for row in rows] == contract


def test_phases_in_the_architecture_are_the_phases() -> None:
    listed = re.findall(
        r"^\d+\. `(\w+)`", section(ARCHITECTURE, "## A start and an end"), re.MULTILINE
    )
    assert listed == [phase.__name__ for phase in PHASES]  # type: ignore[attr-defined]


def test_files_in_where_to_change_what_exist() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| `([^`]+)`", section(ARCHITECTURE, "## Where to change what"), re.MULTILINE
    )
    assert len(rows) >= 10
    assert [row for row in rows if not (ROOT / row).exists() and not (PACKAGE / row).exists()] == []


def test_kill_points_in_contributing_are_those_of_the_code() -> None:
    rows = re.findall(
        r"^\| (`.+) \| (.+) \|$", section(CONTRIBUTING, "### Kill points"), re.MULTILINE
    )
    listed = [point for points, _ in rows for point in re.findall(r"`([\w<>.]+)`", points)]
    names = {
        "{self.queue}": "<queue>",
        "{call.spec.name}": "<tool>",
        "{kill_at}": "<queue>.<outcome>",
    }
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for point in re.findall(r'\bkill_point\(f?"([^"]+)"\)', path.read_text()):
            found.add(re.sub(r"\{[^}]+\}", lambda match: names[match[0]], point))
    assert sorted(listed) == sorted(found)
    (outcomes,) = (text for points, text in rows if "<outcome>" in points)
    worker = (PACKAGE / "queue" / "worker.py").read_text()
    settled = re.findall(r'\._settle\((?:queue\.)?(\w+)(?:.*point="(\w+)")?', worker)
    assert set(re.findall(r"`(\w+)`", outcomes)) == {point or name for name, point in settled}


def test_members_of_a_runtime_in_contributing_are_those_of_the_protocol() -> None:
    listed = re.findall(r"^\| `(\w+)", section(CONTRIBUTING, "### A runtime"), re.MULTILINE)
    assert listed == [name for name in vars(Runtime) if not name.startswith("_")]


def test_roster_imports_the_sdk_and_the_domain_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {imported}"
        for path in (ROOT / "roster").rglob("*.py")
        for imported in re.findall(r"^\s*(?:from|import) (butlers[\w.]*)", path.read_text(), re.M)
        if imported not in ("butlers.sdk", "butlers.sdk.dashboard")
        and not imported.startswith("butlers.domain")
    ]
    assert wrong == []


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
