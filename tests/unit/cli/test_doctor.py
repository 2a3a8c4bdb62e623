"""``butlers doctor`` on a machine without a running fleet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from butlers.cli.main import app
from butlers.runtimes.codex import CodexAdapter

KEY = "credential OPENAI_API_KEY in the environment"
PROGRAM = "#!/bin/sh\necho 'codex-cli 0.1.0'\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Machine with one CLI, of another version than the tested one, and a key for it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "codex").write_text(PROGRAM)
    (programs / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    return tmp_path


def test_without_a_fleet_the_model_check_is_reported_as_not_run(machine: Path) -> None:
    said = CliRunner().invoke(app, ["doctor"])
    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    at = next(
        number for number, line in enumerate(lines) if line.split()[:2] == ["absent", "proof"]
    )
    assert "not tested: no butler is running" in lines[at]
    assert lines[at + 1].strip() == "hint: `butlers up`, then `butlers doctor` again"
    (codex,) = [line for line in lines if line.split()[:2] == ["untested", "codex"]]
    assert codex.endswith(f"0.1.0, tested with {CodexAdapter.pinned}; {KEY}")


def test_json_reports_the_model_check_as_not_run(machine: Path) -> None:
    said = CliRunner().invoke(app, ["doctor", "--json"])
    (proof,) = [check for check in json.loads(said.output) if check["name"] == "proof"]
    assert (proof["state"], proof["detail"]) == ("absent", "not tested: no butler is running")
    assert proof["hint"]


def test_no_prove_omits_the_model_check(machine: Path) -> None:
    said = CliRunner().invoke(app, ["doctor", "--no-prove", "--json"])
    assert "proof" not in {check["name"] for check in json.loads(said.output)}
