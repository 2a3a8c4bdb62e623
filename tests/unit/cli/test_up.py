"""``butlers up`` before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from butlers.cli.main import app
from butlers.domain.errors import ConfigInvalid

NO_SERVER = "postgresql://nobody@127.0.0.1:1/none"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", NO_SERVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("roster", "missing"),
    [
        ('["general"]', "butlers 'switchboard' and 'messenger' are missing"),
        ('["switchboard", "general"]', "butler 'messenger' is missing: no answer can go out"),
        ('["messenger", "general"]', "butler 'switchboard' is missing: no message can come in"),
    ],
)
def test_up_without_a_core_butler_is_refused(home: Path, roster: str, missing: str) -> None:
    (home / "fleet.toml").write_text(f"\nroster = {roster}\n")
    error = CliRunner().invoke(app, ["up"]).exception
    assert isinstance(error, ConfigInvalid)
    assert f"{home}/fleet.toml:2: roster: the core {missing}" in error.message
    assert "--partial" in (error.hint or "")


def test_partial_starts_without_core_butlers(home: Path) -> None:
    (home / "fleet.toml").write_text('roster = ["general"]\n')
    (home / "butlers").mkdir()
    (home / "butlers" / "general.toml").write_text("butler.port = 0\n")
    command = [sys.executable, "-m", "butlers.cli.main", "up", "--partial"]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "the database cannot be reached" in started.stderr  # it got as far as that


def test_edited_working_copy_is_told(home: Path) -> None:
    (home / "fleet.toml").write_text('roster = ["general"]\n')
    CliRunner().invoke(app, ["up"])
    file = home / "roster" / "general" / "butler.toml"
    file.write_text(file.read_text().replace("40101", "40111"))
    told = CliRunner().invoke(app, ["up"]).stderr
    assert f"warning: {file} was edited" in told
    assert f"hint: put your changes, and only these, into {home}/butlers/general.toml" in told
