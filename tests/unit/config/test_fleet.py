from __future__ import annotations

import stat
from pathlib import Path

import pytest

from butlers.config.fleet import FleetConfig, load_fleet_config
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid, ConfigSyntaxError


def _settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environ({"BUTLERS_HOME": str(home), **environ})


def _write(home: Path, text: str) -> Settings:
    (home / "fleet.toml").write_text(text)
    return _settings(home)


def test_the_first_call_writes_the_defaults_with_comments(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    assert load_fleet_config(_settings(home)) == FleetConfig()
    file = home / "fleet.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert [path.name for path in home.iterdir()] == ["fleet.toml"]
    text = file.read_text()
    for key in FleetConfig.model_fields:
        before, _, _ = text.partition(f"\n{key} = ")
        assert before.splitlines()[-1].startswith("# "), key


def test_defaults() -> None:
    fleet = FleetConfig()
    assert (fleet.timezone, fleet.isolation) == ("UTC", "roles")
    assert fleet.roster == (
        *("switchboard", "messenger", "general", "relationship", "health", "finance", "travel"),
    )


def test_existing_file_is_read_and_not_changed(tmp_path: Path) -> None:
    text = 'timezone = "${ZONE}"\nroster = ["health"]\nisolation = "none"\n'
    (tmp_path / "fleet.toml").write_text(text)
    fleet = load_fleet_config(_settings(tmp_path, ZONE="Europe/Rome"))
    assert fleet.timezone == "Europe/Rome"
    assert (fleet.roster, fleet.isolation) == (("health",), "none")
    assert (tmp_path / "fleet.toml").read_text() == text


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert load_fleet_config(_write(tmp_path, "")) == FleetConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nrostr = []", r"fleet\.toml:2: unknown key 'rostr'; did you mean 'roster'\?"),
        ('timezone = "Nowhere"', "timezone: 'Nowhere' is not a time zone"),
        ('isolation = "some"', "isolation: must be 'roles' or 'none'"),
        ('roster = ["../x"]', r"roster\[0\]: '../x' is not a valid butler name"),
        ('roster = ["a", "a"]', r"roster\[1\]: 'a' is listed twice"),
    ],
)
def test_invalid_values_are_rejected(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        load_fleet_config(_write(tmp_path, text))


def test_broken_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigSyntaxError, match=r"fleet\.toml:1: column"):
        load_fleet_config(_write(tmp_path, "timezone = "))


def test_unwritable_home_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigInvalid, match="cannot be written") as caught:
        load_fleet_config(_settings(tmp_path / "file" / "home"))
    assert "BUTLERS_HOME" in (caught.value.hint or "")


def test_warm_pool_is_read(tmp_path: Path) -> None:
    assert FleetConfig().warm_pool == 0
    assert load_fleet_config(_write(tmp_path, "warm_pool = 2")).warm_pool == 2
    with pytest.raises(ConfigInvalid, match="warm_pool"):
        load_fleet_config(_write(tmp_path, "warm_pool = -1"))
