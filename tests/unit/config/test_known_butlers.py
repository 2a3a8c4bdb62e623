"""Butlers that ran with a home stay known while their folder is unreadable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from butlers.config.butler import load_butler_config
from butlers.config.packs import packs_named, packs_written
from butlers.config.roster import known_butlers, remember_butler
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from support.skills import write_files

# No system looks at a name of that length: it fails as a dead mount does, not as if nothing were there.
UNREACHABLE = "x" * 300


def butler(tmp_path: Path, name: str) -> Path:
    text = f'[butler]\nname = "{name}"\nport = 0\n[skills]\npacks = ["a@1.0.0"]\n'
    return write_files(tmp_path / name, {"butler.toml": text})


def test_unreadable_folder_stays_known_and_missing_one_does_not(
    tmp_path: Path,
) -> None:
    home, dead = tmp_path / "home", tmp_path / UNREACHABLE
    write_files(
        home / "registry", {"butlers.json": json.dumps([str(dead), str(tmp_path / "gone")])}
    )
    assert known_butlers(home) == (dead,)
    mine = butler(tmp_path, "mine")
    remember_butler(home, mine)
    assert set(known_butlers(home)) == {dead, mine}


def test_unreadable_folder_is_skipped_when_listing_packs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_files(home / "registry", {"butlers.json": json.dumps([str(tmp_path / UNREACHABLE)])})
    settings = Settings(home)
    config = load_butler_config(butler(tmp_path / "own", "mine"), settings)
    butler(tmp_path / "own", "beside")
    assert set(packs_named(config, settings)) == {"mine", "beside"}


def test_unreadable_config_does_not_count_as_naming_no_packs(tmp_path: Path) -> None:
    assert packs_written(butler(tmp_path, "mine")) == ("mine", ("a@1.0.0",))
    assert packs_written(tmp_path / "gone") == ("gone", ())
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        packs_written(tmp_path / UNREACHABLE)


def test_unreadable_list_of_butlers_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "home" / "registry" / "butlers.json").mkdir(parents=True)
    with pytest.raises(OSError, match=r"butlers\.json"):
        remember_butler(tmp_path / "home", butler(tmp_path, "mine"))
    settings = Settings(tmp_path / "home")
    config = load_butler_config(butler(tmp_path / "own", "mine"), settings)
    assert set(packs_named(config, settings)) == {"mine"}
