"""The master key: from the environment or a private file, made once however many come first."""

from __future__ import annotations

import base64
import multiprocessing
import secrets
from pathlib import Path

import pytest

from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.secrets.master_key import MasterKey
from butlers.wire.tokens import FleetKey

KEY = bytes(range(200, 232))
WRITTEN = {
    "hex": KEY.hex(),
    "hex in capitals": KEY.hex().upper(),
    "base64": base64.b64encode(KEY).decode(),
    "base64 for URLs": base64.urlsafe_b64encode(KEY).decode(),
    "base64 without padding": base64.b64encode(KEY).decode().rstrip("="),
    "with a newline": base64.b64encode(KEY).decode() + "\n",
}


def settings(home: Path, key: str | None = None) -> Settings:
    more = {"BUTLERS_MASTER_KEY": key} if key else {}
    return Settings.from_environ({"BUTLERS_HOME": str(home), **more})


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_key_from_the_environment(tmp_path: Path, written: str) -> None:
    assert MasterKey.load(settings(tmp_path, written)).secret == KEY
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    "written",
    ["planted", KEY[:16].hex(), KEY[:31].hex(), base64.b64encode(KEY + b"x").decode(), "ä" * 32],
)
def test_a_key_of_the_wrong_length_is_refused_and_not_repeated(
    tmp_path: Path, written: str
) -> None:
    with pytest.raises(ConfigInvalid, match="BUTLERS_MASTER_KEY is not a key of 32 bytes") as no:
        MasterKey.load(settings(tmp_path, written))
    assert "base64" in (no.value.hint or "")
    assert written not in f"{no.value}{no.value.hint}"


def test_a_key_file_is_made_once_and_private(tmp_path: Path) -> None:
    home = tmp_path / "not" / "there"
    first = MasterKey.load(settings(home))
    file = home / "keys" / "master.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["master.key"]
    assert len(first.secret) == 32
    assert MasterKey.load(settings(home)) == first
    assert MasterKey.load(settings(tmp_path / "another")) != first


def test_a_key_shows_its_id_and_not_itself(tmp_path: Path) -> None:
    key = MasterKey.load(settings(tmp_path))
    assert repr(key) == "MasterKey()"
    assert key.key_id not in key.secret.hex()
    assert key.key_id != MasterKey(secrets.token_bytes(32)).key_id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_key_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    MasterKey.load(settings(tmp_path))
    file = tmp_path / "keys" / "master.key"
    file.chmod(mode)
    with pytest.raises(ConfigInvalid, match=f"mode {mode:04o}") as refused:
        MasterKey.load(settings(tmp_path))
    assert f"chmod 600 {file}" in (refused.value.hint or "")


@pytest.mark.parametrize("content", [b"", KEY[:31], KEY + b"\n"])
def test_a_damaged_key_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys" / "master.key"
    file.parent.mkdir()
    file.touch(0o600)
    file.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="damaged"):
        MasterKey.load(settings(tmp_path))
    assert file.read_bytes() == content


def test_folder_in_place_of_the_key_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "keys" / "master.key").mkdir(parents=True)
    with pytest.raises(ConfigInvalid, match="cannot be read") as refused:
        MasterKey.load(settings(tmp_path))
    assert refused.value.hint


def _load(home: str) -> tuple[bytes, bytes]:
    return MasterKey.load(settings(Path(home))).secret, FleetKey.load(Path(home)).secret


def test_concurrent_first_processes_get_the_same_keys(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(12) as pool:
        found = pool.map(_load, [str(tmp_path / "home")] * 48, chunksize=1)
    assert len(set(found)) == 1
    assert sorted(path.name for path in (tmp_path / "home/keys").iterdir()) == [
        "fleet.key",
        "master.key",
    ]
