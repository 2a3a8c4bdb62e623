from __future__ import annotations

from pathlib import Path

import pytest

from butlers.config.butler import ButlerConfig, DatabaseConfig
from butlers.config.fleet import FleetConfig
from butlers.config.overrides import shipped_roster
from butlers.config.roster import check_distinct, find_butlers
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid, ConfigMissing


def _butlers(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 0\n')
    return folder


def _find(tmp_path: Path, *roster: str, own: Path | None = None) -> list[str]:
    settings = Settings.from_environ({"BUTLERS_HOME": str(tmp_path / "home")})
    fleet = FleetConfig(roster=roster)
    found = find_butlers(fleet, settings, shipped=tmp_path / "roster", own=own)
    return [str(path.relative_to(tmp_path)) for path in found]


def test_roster_comes_first_then_the_users_butlers(tmp_path: Path) -> None:
    _butlers(tmp_path / "roster", "a", "b", "c")
    own = _butlers(tmp_path / "butlers", "z", "y", ".hidden")
    (own / "no-config").mkdir()
    (own / "README.md").write_text("")
    assert _find(tmp_path, "c", "a", own=own) == [
        "home/roster/c",
        "home/roster/a",
        "butlers/y",
        "butlers/z",
    ]


def test_users_folder_may_be_missing(tmp_path: Path) -> None:
    _butlers(tmp_path / "roster", "a")
    assert _find(tmp_path, "a") == ["home/roster/a"]
    assert _find(tmp_path, "a", own=tmp_path / "butlers") == ["home/roster/a"]


def test_roster_may_name_a_users_butler(tmp_path: Path) -> None:
    _butlers(tmp_path / "roster", "a")
    own = _butlers(tmp_path / "butlers", "mine")
    assert _find(tmp_path, "mine", "a", own=own) == ["home/roster/a", "butlers/mine"]


def test_unknown_roster_name_is_rejected(tmp_path: Path) -> None:
    _butlers(tmp_path / "roster", "general", "health")
    (tmp_path / "roster" / "shared").mkdir()
    with pytest.raises(ConfigMissing, match="'helth'") as caught:
        _find(tmp_path, "general", "helth")
    assert caught.value.message.endswith("available: general, health")
    assert caught.value.key == "roster"
    assert "did you mean 'health'?" in (caught.value.hint or "")


def test_missing_shipped_roster_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigMissing, match="shipped roster"):
        _find(tmp_path, "general")


def test_the_shipped_roster_is_the_one_of_this_checkout() -> None:
    assert shipped_roster() == Path(__file__).resolve().parents[3] / "roster"


def _config(name: str, port: int, db: DatabaseConfig, folder: str = "") -> ButlerConfig:
    return ButlerConfig(name=name, port=port, db=db, directory=Path("/r") / (folder or name))


def test_distinct_butlers_are_accepted() -> None:
    check_distinct(
        [
            _config("a", 0, DatabaseConfig("butlers", "a")),
            _config("b", 0, DatabaseConfig("butlers", "b")),
            _config("c", 1, DatabaseConfig("butler_c")),
        ]
    )
    check_distinct([])


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (_config("a", 2, DatabaseConfig("x"), "b"), "the name a"),
        (_config("b", 1, DatabaseConfig("x")), "the port 1"),
        (_config("b", 2, DatabaseConfig("butlers", "a")), "the database butlers, schema a"),
    ],
)
def test_a_clash_names_both_files(second: ButlerConfig, said: str) -> None:
    first = _config("a", 1, DatabaseConfig("butlers", "a"))
    with pytest.raises(ConfigInvalid) as caught:
        check_distinct(iter([first, second]))
    expected = f"two butlers have {said}: /r/a/butler.toml and /r/b/butler.toml"
    assert caught.value.message == expected


def test_all_clashes_are_named() -> None:
    one = _config("a", 1, DatabaseConfig("x"))
    with pytest.raises(ConfigInvalid) as caught:
        check_distinct([one, _config("a", 1, DatabaseConfig("x"), "b")])
    assert len(caught.value.message.splitlines()) == 3
