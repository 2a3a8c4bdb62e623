"""Key files that other users can access are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.secrets.master_key import MasterKey
from butlers.wire.tokens import FleetKey


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602])
def test_fleet_key_that_others_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    """Another user of the machine reads or replaces a fleet key that a backup restored too openly."""
    home = tmp_path / "a home"
    FleetKey.load(home)
    file = home / "keys" / "fleet.key"
    file.chmod(mode)
    with pytest.raises(ConfigInvalid, match="accessible to other users") as caught:
        FleetKey.load(home)
    assert caught.value.hint == f"`chmod 600 '{file}'`"
    file.chmod(0o600)
    assert FleetKey.load(home).secret == file.read_bytes()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_master_key_that_others_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    """Another user of the machine reads or replaces the key that encrypts the secrets."""
    settings = Settings(tmp_path)
    MasterKey.load(settings)
    (tmp_path / "keys" / "master.key").chmod(mode)
    with pytest.raises(ConfigInvalid, match="accessible to other users") as caught:
        MasterKey.load(settings)
    assert "chmod 600" in (caught.value.hint or "")
