"""``butlers init`` and ``butlers module new``, run as commands: files they write, arguments they reject."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.cli.examples import EXAMPLES
from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.settings import Settings
from butlers.runtimes.registry import cli_runtimes
from butlers.sessions.system_prompt import read_system_prompt
from support.fleet import butlers_environment, command
from support.forked import run_butlers

Shell = Callable[..., "subprocess.CompletedProcess[str]"]
PLACEHOLDER = "<!-- Define this butler's personality, instructions, and available skills here -->"


@pytest.fixture
def butlers(tmp_path: Path) -> Shell:
    """Return a function that runs a command in an empty folder."""

    def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        env = butlers_environment(tmp_path / "home", 0, **extra)
        return run_butlers(*arguments, env=env, cwd=tmp_path)

    return run


def config_of(folder: Path) -> ButlerConfig:
    return load_butler_config(folder, Settings.from_environ({}))


def everything(folder: Path) -> dict[str, str | None]:
    """Return each path below a folder, with the text of files."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


@pytest.mark.scenario("S000-01")
def test_the_folder_has_all_required_files(butlers: Shell, tmp_path: Path) -> None:
    assert butlers("init", "relationship").returncode == 0
    folder = tmp_path / "butlers" / "relationship"
    assert (folder / "CLAUDE.md").is_file()
    assert (folder / "AGENTS.md").is_file()
    assert (folder / "skills").is_dir()
    assert (folder / "butler.toml").is_file()


@pytest.mark.scenario("S000-32", "S000-33", "S000-34", "S000-36")
def test_init_with_a_port_writes_the_documented_files(butlers: Shell, tmp_path: Path) -> None:
    done = butlers("init", "mybutler", "--port", "40104")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "butlers" / "mybutler"
    assert PLACEHOLDER in (folder / "CLAUDE.md").read_text()  # so it is not empty either
    notes = "<!-- Runtime notes populated by runtime sessions -->"
    assert (folder / "AGENTS.md").read_text().strip() in ("", notes)
    assert (folder / "skills").is_dir()
    assert list((folder / "skills").iterdir()) == []  # no skills, no samples, no templates
    assert sorted(path.name for path in folder.iterdir()) == [
        "AGENTS.md",
        "CLAUDE.md",
        "butler.toml",
        "skills",
    ]
    config = config_of(folder)
    assert (config.name, config.port) == ("mybutler", 40104)
    assert (config.db.name, config.db.schema) == ("butler_mybutler", None)
    assert config.switchboard is not None
    assert config.switchboard.advertise
    assert "Created butlers/mybutler on port 40104" in done.stdout
    assert "butlers run --config butlers/mybutler" in done.stdout


def test_port_of_a_roster_butler_is_a_warning(butlers: Shell) -> None:
    done = butlers("init", "mybutler", "--port", "40104")
    assert done.returncode == 0
    assert "warning: messenger (" in done.stderr
    assert "has the port 40104" in done.stderr
    assert "warning" not in done.stdout
    kept = butlers("init", "another", "--port", "40106")
    assert (kept.returncode, "warning: travel (" in kept.stderr) == (0, True)
    own = butlers("init", "third", "--port", "40106")
    assert "warning: another (" in own.stderr
    named = butlers("init", "general")
    assert (named.returncode, "has the name general" in named.stderr) == (0, True)


def test_init_without_a_port_uses_the_next_free_one(butlers: Shell, tmp_path: Path) -> None:
    for name, port in (("one", 40107), ("two", 40108)):
        assert butlers("init", name).returncode == 0
        assert config_of(tmp_path / "butlers" / name).port == port
    assert butlers("init", "three", "--port", "40110").stderr == ""
    assert butlers("init", "four", BUTLERS_PORT_OFFSET="1000").returncode == 0
    assert butlers("init", "five").returncode == 0
    assert config_of(tmp_path / "butlers" / "four").port == 40109  # the offset is not in the file
    assert config_of(tmp_path / "butlers" / "five").port == 40111
    assert butlers("init", "six", "--dir", "roster").returncode == 0
    assert config_of(tmp_path / "roster" / "six").port == 40112  # ports of both folders count
    assert (tmp_path / "butlers" / "six").exists() is False


@pytest.mark.parametrize(
    "name", ["", "Upper", "with space", "../out", "a/b", "-x", ".hidden", "1st", "ü", "a" * 41]
)
def test_invalid_name_is_rejected_and_nothing_is_written(
    butlers: Shell, tmp_path: Path, name: str
) -> None:
    refused = butlers("init", "--", name)
    assert refused.returncode == 1
    assert "is not a valid butler name" in refused.stderr
    assert "hint: " in refused.stderr
    assert refused.stdout == ""
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("switchboard",), "every fleet has"),
        (("messenger",), "every fleet has"),
        (("x", "--port", "0"), "0 is not a port"),
        (("x", "--port", "65536"), "65536 is not a port"),
    ],
)
def test_names_and_ports_that_cannot_start_are_rejected(
    butlers: Shell, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    refused = butlers("init", *arguments)
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert everything(tmp_path) == {}


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "dangling link"])
def test_existing_path_is_not_changed(butlers: Shell, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "butlers" / "mine"
    there.parent.mkdir()
    match kind:
        case "folder":
            there.mkdir()
            (there / "CLAUDE.md").write_text("You are kind.\n")
        case "empty folder":
            there.mkdir()
        case "file":
            there.write_text("not a butler\n")
        case _:
            there.symlink_to("nowhere")
    before = everything(tmp_path)
    refused = butlers("init", "mine")
    assert refused.returncode == 1
    assert "butlers/mine already exists; nothing was changed" in refused.stderr
    assert everything(tmp_path) == before
    assert there.is_symlink() == (kind == "dangling link")


def test_unwritable_folder_leaves_nothing_behind(butlers: Shell, tmp_path: Path) -> None:
    (tmp_path / "butlers").write_text("a file where the folder should be\n")
    refused = butlers("init", "mine")
    assert refused.returncode == 1
    assert "cannot be created" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list(everything(tmp_path)) == ["butlers"]


def test_two_simultaneous_inits_create_one_butler(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            command("init", "mine", "--port", port),
            env=butlers_environment(tmp_path / "home", 0),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for port in ("40150", "40151", "40152")
    ]
    codes = sorted(process.wait(60) for process in running)
    for process in running:
        process.communicate()
    assert codes == [0, 1, 1]
    assert [path.name for path in (tmp_path / "butlers").iterdir()] == ["mine"]  # no drafts
    assert config_of(tmp_path / "butlers" / "mine").port in (40150, 40151, 40152)


def test_unreadable_neighbor_is_a_warning(butlers: Shell, tmp_path: Path) -> None:
    (tmp_path / "butlers" / "torn").mkdir(parents=True)
    (tmp_path / "butlers" / "torn" / "butler.toml").write_text("[butler\n")
    done = butlers("init", "mine")
    assert done.returncode == 0
    assert "warning: left out of the port check: " in done.stderr
    assert "torn/butler.toml:1" in done.stderr


def test_a_roster_folder_gets_the_full_layout(butlers: Shell, tmp_path: Path) -> None:
    (tmp_path / "roster" / "shared").mkdir(parents=True)
    (tmp_path / "roster" / "shared" / "AGENTS.md").write_text("# How every butler works\n")
    assert butlers("init", "garden-diary", "--dir", "roster").returncode == 0
    folder = tmp_path / "roster" / "garden-diary"
    files = everything(folder)
    assert sorted(files) == [
        "AGENTS.md",
        "CLAUDE.md",
        "MANIFESTO.md",
        "butler.toml",
        "modules",
        "modules/__init__.py",
        "skills",
        "tools",
        "tools/__init__.py",
    ]
    assert files["CLAUDE.md"] == "@AGENTS.md\n"
    assert str(files["AGENTS.md"]).startswith("@../shared/AGENTS.md\n")
    assert "# Notes to self" in str(files["AGENTS.md"])
    assert str(files["MANIFESTO.md"]).startswith("# Garden diary\n")
    config = config_of(folder)
    assert (config.db.name, config.db.schema) == ("butlers", "garden_diary")
    assert list(config.modules) == ["garden-diary", "approvals"]
    from butlers.modules.registry import load_modules

    assert [module.name for module in load_modules(config)] == ["garden-diary", "approvals"]


def test_a_new_butler_has_addresses_a_proxy_and_a_prompt(butlers: Shell, tmp_path: Path) -> None:
    for parent in ("butlers", "roster"):
        assert butlers("init", f"{parent}-one", "--dir", parent).returncode == 0
        folder = tmp_path / parent / f"{parent}-one"
        declared = set(config_of(folder).env.optional)
        assert {cli.settings[0] for cli in cli_runtimes().values()} <= declared
        assert {"HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"} <= declared
        prompt = read_system_prompt(folder, f"{parent}-one")
        assert f"You are the {parent}-one butler" in prompt
        assert "reaches\n  nobody" in prompt
        assert 'intent "reply"' in prompt


@pytest.mark.parametrize("example", sorted(EXAMPLES))
def test_examples_are_whole_butlers(butlers: Shell, tmp_path: Path, example: str) -> None:
    done = butlers("init", "mine", "--from", example)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "butlers" / "mine"
    config = config_of(folder)
    assert config.name == "mine"
    assert config.description
    (schedule,) = config.schedules
    names = sorted(path.name for path in (folder / "skills").iterdir())
    assert schedule.prompt is not None
    assert schedule.name in names
    assert schedule.name in schedule.prompt
    for name in names:
        checked = butlers("skills", "check", str(folder / "skills" / name), "--json")
        assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "You are the mine butler: " in read_system_prompt(folder, "mine")


def test_an_unknown_example_writes_nothing(butlers: Shell, tmp_path: Path) -> None:
    refused = butlers("init", "mine", "--from", "nothing")
    assert refused.returncode == 1
    assert "hint: examples: habits, journal" in refused.stderr
    assert everything(tmp_path) == {}


# -- butlers module new ----------------------------------------------------------------------------


def test_a_new_module_comes_with_a_test_that_passes(butlers: Shell, tmp_path: Path) -> None:
    butlers("init", "mine")
    folder = tmp_path / "butlers" / "mine"
    before = (folder / "butler.toml").read_text()
    done = butlers("module", "new", "weather", "--butler", "butlers/mine")
    assert done.returncode == 0, done.stderr
    assert sorted(path for path in everything(folder) if "weather" in path) == [
        "modules/weather",
        "modules/weather/__init__.py",
        "modules/weather/config.py",
        "modules/weather/tools.py",
        "tests/test_weather.py",
    ]
    assert (folder / "butler.toml").read_text() == before + "\n[modules.weather]\n"
    assert list(config_of(folder).modules) == ["weather"]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "butlers/mine/tests/test_weather.py"],
        env=butlers_environment(tmp_path / "home", 0),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout


def test_generated_files_pass_our_linter_and_formatter(butlers: Shell, tmp_path: Path) -> None:
    butlers("init", "mine", "--dir", "roster")
    butlers("module", "new", "weather", "--butler", "roster/mine")
    ruff = str(Path(sys.executable).with_name("ruff"))
    ours = str(Path(__file__).resolve().parents[3] / "pyproject.toml")
    shared = ["--no-cache", "--config", ours, "roster"]
    # Relative imports are the only ones that a roster folder has.
    first_party = ["--config", 'lint.isort.known-first-party = ["butlers"]', "--ignore", "TID252"]
    for arguments in (["check", *first_party], ["format", "--check"]):
        checked = subprocess.run(
            [ruff, *arguments, *shared], cwd=tmp_path, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_second_module_is_added_beside_the_first(butlers: Shell, tmp_path: Path) -> None:
    butlers("init", "mine")
    for name in ("weather", "tides"):
        folder = str(tmp_path / "butlers" / "mine")
        assert butlers("module", "new", name, "--butler", folder).returncode == 0
    from butlers.modules.registry import load_modules

    config = config_of(tmp_path / "butlers" / "mine")
    assert [module.name for module in load_modules(config)] == ["weather", "tides"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Weather", "is not a module name"),
        ("with-dash", "is not a module name"),
        ("class", "is not a module name"),
        ("../out", "is not a module name"),
        ("taken", "already has [modules.taken]"),
        ("there", "already exists; nothing was changed"),
    ],
)
def test_invalid_module_changes_nothing(
    butlers: Shell, tmp_path: Path, name: str, said: str
) -> None:
    butlers("init", "mine")
    folder = tmp_path / "butlers" / "mine"
    (folder / "modules" / "there").mkdir(parents=True)
    with (folder / "butler.toml").open("a") as file:
        file.write("[modules.taken]\n")
    before = everything(tmp_path)
    refused = butlers("module", "new", name, "--butler", "butlers/mine")
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert "hint: " in refused.stderr
    assert everything(tmp_path) == before


def test_butler_toml_that_cannot_take_a_section_is_not_changed(
    butlers: Shell, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "butler.toml").write_text('modules = {}\n[butler]\nname = "mine"\nport = 40150')
    before = everything(folder)
    refused = butlers("module", "new", "weather", "--butler", "mine")
    assert refused.returncode == 1
    assert "a section cannot be added at its end" in refused.stderr
    assert everything(folder) == before


def test_module_new_outside_a_butler_folder_is_an_error(butlers: Shell, tmp_path: Path) -> None:
    refused = butlers("module", "new", "weather")
    assert refused.returncode == 1
    assert "butler.toml: the file does not exist" in refused.stderr
    assert os.listdir(tmp_path) == []
