"""Changes to a shipped butler in $BUTLERS_HOME/butlers/<name>.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from butlers.config.butler import ButlerConfig, load_butler_config
from butlers.config.document import Problem
from butlers.config.fleet import FleetConfig
from butlers.config.packs import name_pack, packs_written, source_file
from butlers.config.roster import find_butlers
from butlers.config.settings import Settings
from butlers.domain.errors import (
    ConfigInvalid,
    ConfigSyntaxError,
    UnresolvedVariables,
)

SHIPPED = """\
[butler]
name = "health"
port = 40103
description = "Measures."

[butler.env]
optional = ["A", "B"]

[[butler.schedule]]
name = "morning"
cron = "0 7 * * *"
prompt = "Good morning"

[[butler.schedule]]
name = "evening"
cron = "0 21 * * *"
prompt = "Good night"

[modules.mail]
address = "${ADDRESS}"
folders = { inbox = "in", sent = "out" }
"""


class Home:
    """A home with the working copy of one shipped butler."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "roster" / "health" / "butler.toml"
        self.override = folder / "butlers" / "health.toml"
        for file, text in ((self.file, SHIPPED), (self.override, "")):
            file.parent.mkdir(parents=True)
            file.write_text(text)

    def load(self, override: str, **environ: str) -> ButlerConfig:
        self.override.write_text(override)
        settings = Settings(self.folder, environ={"ADDRESS": "me@example.org", **environ})
        return load_butler_config(self.file.parent, settings)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_values_replace_and_tables_merge(home: Home) -> None:
    config = home.load(
        """
        [butler]
        port = 40199
        runtime = { model = "large" }
        [butler.env]
        optional = ["C"]
        [modules.mail.folders]
        sent = "gone"
        """
    )
    assert (config.port, config.description) == (40199, "Measures.")
    assert config.runtime.model == "large"
    assert config.env.optional == ("C",)
    assert config.modules["mail"] == {
        "address": "me@example.org",
        "folders": {"inbox": "in", "sent": "gone"},
    }
    assert config.override == home.override


def test_schedules_merge_by_name(home: Home) -> None:
    config = home.load(
        """
        [[butler.schedule]]
        name = "noon"
        cron = "0 12 * * *"
        prompt = "Lunch"
        [[butler.schedule]]
        name = "evening"
        cron = "0 22 * * *"
        """
    )
    assert [(one.name, one.cron, one.prompt) for one in config.schedules] == [
        ("morning", "0 7 * * *", "Good morning"),
        ("evening", "0 22 * * *", "Good night"),
        ("noon", "0 12 * * *", "Lunch"),
    ]


def test_an_empty_array_removes_the_shipped_schedules(home: Home) -> None:
    assert home.load("butler.schedule = []").schedules == ()


def test_variable_of_a_replaced_value_need_not_be_set(home: Home) -> None:
    override = 'modules.mail.address = "${MINE}"'
    assert home.load(override, ADDRESS="", MINE="x@y").modules["mail"]["address"] == "x@y"


def test_without_an_override_the_shipped_file_counts(home: Home) -> None:
    home.override.unlink()
    config = load_butler_config(home.file.parent, Settings(home.folder, environ={"ADDRESS": "a"}))
    assert (config.port, config.override) == (40103, None)


def test_a_butler_of_ones_own_is_not_changed_by_it(home: Home, tmp_path: Path) -> None:
    own = tmp_path / "mine" / "health"
    own.mkdir(parents=True)
    (own / "butler.toml").write_text('[butler]\nname = "health"\nport = 1\n')
    home.override.write_text("butler.port = 2")
    assert load_butler_config(own, Settings(home.folder)).port == 1


@pytest.mark.parametrize(
    ("override", "line", "key", "said"),
    [
        ("\n[butler]\nprot = 1", 3, "butler.prot", "unknown key 'butler.prot'; did you mean"),
        ("[butler]\n\nport = 'x'", 3, "butler.port", "butler.port: must be a valid integer"),
        ("\nbutler = 1", 2, "butler", "butler: must be a table"),
        (
            '[[butler.schedule]]\nname = "evening"\nmissed = "never"',
            3,
            "butler.schedule[0].missed",
            "butler.schedule[0].missed: must be 'skip'",
        ),
        (
            '[[butler.schedule]]\nname = "noon"',
            1,
            "butler.schedule[0].cron",
            "butler.schedule[0].cron: cron is required",
        ),
        (
            '[[butler.schedule]]\nname="evening"\n[[butler.schedule]]\nname="evening"\n'
            'cron="0 1 * * *"\nprompt="x"',
            4,
            "butler.schedule[1].name",
            "two schedules are named 'evening'",
        ),
        ('[butler]\nname = "other"', 2, "butler.name", "a shipped butler keeps its name"),
        ("[delivery]\nper_minute = 1", 1, "delivery", "only the messenger delivers"),
    ],
)
def test_error_names_override_line_and_key(
    home: Home, override: str, line: int, key: str, said: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        home.load(override)
    assert (caught.value.path, caught.value.line) == (home.override, line)
    assert caught.value.key == key
    assert said in caught.value.message


def test_broken_override_is_named(home: Home) -> None:
    with pytest.raises(ConfigSyntaxError, match=r"butlers/health\.toml:2: column"):
        home.load("\nbutler = = 1")


def test_unset_variables_of_both_files_are_listed(home: Home) -> None:
    with pytest.raises(UnresolvedVariables) as caught:
        home.load('\nbutler.description = "${NOPE}"', ADDRESS="")
    assert (caught.value.path, caught.value.line) == (home.override, 2)
    assert f"{home.file}:20: modules.mail.address: ${{ADDRESS}} is not set" in caught.value.message


def test_error_in_the_shipped_file_mentions_the_override(home: Home) -> None:
    home.file.write_text(SHIPPED.replace("40103", "40103\nshutdown_timeout_s = 3"))
    with pytest.raises(ConfigInvalid, match=r"health/butler\.toml:4") as caught:
        home.load("butler.shutdown.timeout_s = 5")
    assert f"{home.override} is merged over this file" in (caught.value.hint or "")


def test_problem_found_later_is_reported_in_its_file(home: Home) -> None:
    config = home.load('[[butler.schedule]]\nname = "noon"\ncron = "x"\nprompt = "y"')
    for index, file, line in ((2, home.override, 3), (1, home.file, 16)):
        path = ("butler", "schedule", index, "cron")
        problem = Problem(path, f"butler.schedule[{index}].cron: is wrong")
        error = config.document().invalid([problem])
        assert (error.path, error.line) == (file, line)
    assert config.document().invalid([Problem(("modules", "mail"), "no")]).path == home.file


def test_override_of_no_butler_is_refused(home: Home) -> None:
    home.override.rename(home.override.with_name("helth.toml"))
    fleet, settings = FleetConfig(roster=("health",)), Settings(home.folder)
    with pytest.raises(
        ConfigInvalid, match=r"helth\.toml: no shipped butler is named 'helth'"
    ) as caught:
        find_butlers(fleet, settings, shipped=home.folder, own=None, refresh=False)
    assert "did you mean health.toml?" in (caught.value.hint or "")


def test_pack_is_added_to_the_override_with_the_shipped_ones(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("butlers.config.packs.shipped_roster", lambda: tmp_path / "roster")
    home.file.write_text(f'{SHIPPED}\n[skills]\npacks = ["a@1.0.0"]\n')
    home.override.unlink()
    home.override.parent.rmdir()
    file = source_file(home.file.parent, home.folder)
    assert file == home.override
    assert name_pack(file, "b@1.0.0")
    assert tomllib.loads(file.read_text()) == {"skills": {"packs": ["a@1.0.0", "b@1.0.0"]}}
    assert packs_written(home.file.parent, file)[1] == ("a@1.0.0", "a@1.0.0", "b@1.0.0")
