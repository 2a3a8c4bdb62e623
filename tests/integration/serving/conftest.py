"""A butler at work whose configuration names packs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration.daemon.conftest import make_house
from integration.daemon.house import MakeHouse
from integration.serving.bureau import Bureau

__all__ = ["make_house"]

MakeBureau = Callable[..., Bureau]


@pytest.fixture
def make_bureau(make_house: MakeHouse, tmp_path: Path) -> MakeBureau:
    """Its packs are registered before it starts: ``extra`` is more of its butler.toml."""

    def make(*packs: str, skills: str = "", extra: str = "") -> Bureau:
        named = ", ".join(f'"{pack}"' for pack in packs)
        house = make_house(extra=f"{extra}\n[skills]\npacks = [{named}]\n{skills}\n")
        return Bureau(house, tmp_path / "sources")

    return make
