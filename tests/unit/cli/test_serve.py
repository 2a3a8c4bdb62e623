"""Channel tables that ``butlers up`` and ``butlers run`` refuse before the database starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.fleet import ROOT, butlers_environment
from support.forked import run_butlers


@pytest.mark.parametrize("command", [("up",), ("run", "--config", "butlers/messenger")])
def test_wrong_channel_table_is_refused_before_the_database_starts(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    folder = tmp_path / "butlers" / "messenger"
    shutil.copytree(ROOT / "roster" / "messenger", folder)
    with open(folder / "butler.toml", "a") as file:
        file.write("\n[channels.webhok]\n")
    (tmp_path / "fleet.toml").write_text('roster = ["switchboard"]\n')
    ended = run_butlers(*command, env=butlers_environment(tmp_path, 0), cwd=tmp_path)
    assert ended.returncode == 1
    assert "unknown key 'channels.webhok'; did you mean 'webhook'?" in ended.stderr
    assert not (tmp_path / "postgres").exists()
