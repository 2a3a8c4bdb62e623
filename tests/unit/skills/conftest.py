"""Fixture that runs `butlers skills` commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from butlers.cli.main import main
from support.skills_cli import Ran, Run


@pytest.fixture
def run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command in this process, with its own home, in a folder without butlers."""
    monkeypatch.setenv("BUTLERS_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["butlers", "skills", *map(str, arguments)])
        code = main()
        output = capsys.readouterr()
        return Ran(code, output.out, output.err)

    return call
