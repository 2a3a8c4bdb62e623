"""``butlers config show``: effective values, their origins, and no secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from butlers.cli.main import app
from butlers.domain.errors import ConfigInvalid, NotFound

OVERRIDE = """\
[butler]
port = 40190
[butler.runtime]
model = "${MODEL}"
args = ["--api-key", "hunter2", "--token=hunter2", "--verbose"]
[modules.health]
password = "hunter2"
login = { token = "${SECRET}", user = "me", url = "https://me:hunter2@example.org" }
mixed = ["plain", { token = "hunter2" }, [{ note = "${SECRET}" }]]
hook = "https://example.org/in?key=hunter2&room=hunter2"
[butler.env]
required = ["MODEL"]
"""
OWN = """\
[butler]
name = "mine"
port = 0
shutdown_timeout_s = 7
timezone = "Europe/Rome"
[[butler.schedule]]
name = "noon"
cron = "0 12 * * *"
prompt = "Lunch"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("butlers/health.toml", OVERRIDE), ("own/butlers/mine/butler.toml", OWN)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    for variable, value in (("MODEL", "large-1"), ("SECRET", "hunter2")):
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path


def shown(name: str) -> dict[str, dict[str, Any]]:
    ran = CliRunner().invoke(app, ["config", "show", name, "--json"])
    assert ran.exit_code == 0, ran.exception
    return {row["key"]: row for row in json.loads(ran.stdout)}


def test_each_value_has_its_origin(home: Path) -> None:
    rows = shown("health")
    file, override = str(home / "roster/health/butler.toml"), str(home / "butlers/health.toml")
    assert {key: (rows[key]["value"], rows[key]["origin"]) for key in rows} | {
        "butler.name": ("health", "shipped"),
        "butler.port": (40190, "override"),
        "butler.timezone": ("UTC", "fleet"),
        "butler.db.name": ("butlers", "shipped"),
        "butler.runtime.model": ("${MODEL}", "override"),
        "butler.runtime.max_concurrent_sessions": (3, "shipped"),
        "butler.runtime.timeout_s": (300, "default"),
        "butler.storage.blob_dir": (str(home / "data/blobs"), "default"),
        "butler.env.required": (["MODEL"], "override"),
        "modules.health.login.user": ("me", "override"),
    } == {key: (rows[key]["value"], rows[key]["origin"]) for key in rows}
    assert (rows["butler.port"]["file"], rows["butler.port"]["line"]) == (override, 2)
    assert (rows["butler.name"]["file"], rows["butler.name"]["line"]) == (file, 2)
    assert rows["butler.runtime.timeout_s"]["file"] is None


def test_a_butler_of_ones_own_is_shown(home: Path) -> None:
    rows = shown("mine")
    assert (rows["butler.port"]["origin"], rows["butler.port"]["line"]) == ("own", 3)
    assert rows["butler.shutdown.timeout_s"]["value"] == 7
    assert rows["butler.shutdown.timeout_s"]["line"] == 4
    assert rows["butler.db.name"]["value"] == "butler_mine"
    assert rows["butler.schedule[0].cron"]["value"] == "0 12 * * *"
    assert rows["butler.schedule[0].timezone"]["value"] == "Europe/Rome"
    assert rows["butler.switchboard"]["value"] is None


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_secrets_are_never_shown(home: Path, options: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(app, ["config", "show", "health", *options])
    assert ran.exit_code == 0
    assert "hunter2" not in ran.output
    assert "large-1" not in ran.output
    assert "${SECRET}" in ran.output
    assert "--verbose" in ran.output


def test_table_names_file_and_line(home: Path) -> None:
    lines = CliRunner().invoke(app, ["config", "show", "health"]).stdout.splitlines()
    assert lines[0].split() == ["KEY", "VALUE", "ORIGIN", "FILE"]
    (port,) = [line.split() for line in lines if line.startswith("butler.port ")]
    assert port == ["butler.port", "40190", "override", f"{home}/butlers/health.toml:2"]


def test_unknown_butler_and_invalid_override_are_errors(home: Path) -> None:
    assert isinstance(CliRunner().invoke(app, ["config", "show", "helth"]).exception, NotFound)
    (home / "butlers" / "health.toml").write_text("butler.prot = 1\n")
    error = CliRunner().invoke(app, ["config", "show", "health"]).exception
    assert isinstance(error, ConfigInvalid)
    assert f"{home}/butlers/health.toml:1" in error.message
    assert shown("mine")
