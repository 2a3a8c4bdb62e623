"""Houses with real butlers in them, against the run's own database server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support import npm
from support.in_process import House, MakeHouse, copy_roster, write_tester, write_versions
from support.pack_butler import Bureau, MakeBureau
from support.programs import Programs


@pytest.fixture
async def make_house(
    tmp_path: Path, home: Path, key: FleetKey, provisioner: Provisioner, database_name: str
) -> AsyncIterator[MakeHouse]:
    """Makes the house of a test butler, or of a shipped one by name; each is closed after the test."""
    houses: list[House] = []
    versions = tmp_path / "versions"
    write_versions(versions)

    def make(roster: str | None = None, **options: str) -> House:
        directory = tmp_path / (roster or "tester")
        if roster is None:
            write_tester(directory, database_name, **options)
        else:
            copy_roster(roster, directory, database_name)
        houses.append(House(directory, home, key, provisioner, versions))
        return houses[-1]

    yield make
    for house in houses:
        await house.close()


@pytest.fixture
async def house(make_house: MakeHouse) -> House:
    """A house whose butler is at work."""
    made = make_house()
    await made.start()
    return made


@pytest.fixture
async def switchboard(make_house: MakeHouse) -> House:
    """The shipped Switchboard, at work."""
    made = make_house("switchboard")
    await made.start()
    return made


@pytest.fixture
def mcp_programs(home: Path) -> Programs:
    """The protocol's own programs: its conformance suite and its Inspector."""
    return Programs(npm.installed("mcp"), home)


@pytest.fixture
def make_bureau(make_house: MakeHouse, tmp_path: Path) -> MakeBureau:
    """Its packs are registered before it starts: ``extra`` is more of its butler.toml."""

    def make(*packs: str, skills: str = "", extra: str = "") -> Bureau:
        named = ", ".join(f'"{pack}"' for pack in packs)
        house = make_house(extra=f"{extra}\n[skills]\npacks = [{named}]\n{skills}\n")
        return Bureau(house, tmp_path / "sources")

    return make
