"""The fixture butler's modules on a bench, against the run's own database server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from butlers.db.database import Database
from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support.postbox import Bench, load_config, write_postbox
from support.postbox_butler import Place, Start

MakeBench = Callable[..., Bench]


@pytest.fixture
async def make_bench(tmp_path: Path, database: Database) -> AsyncIterator[MakeBench]:
    """Makes a bench; what is still running after the test is stopped."""
    made: list[Bench] = []

    def make(*arguments: Any, **options: Any) -> Bench:
        directory = tmp_path / f"postbox{len(made)}"
        write_postbox(directory, *arguments, **options)
        made.append(Bench(load_config(directory), database))
        return made[-1]

    yield make
    for bench in made:
        if hasattr(bench, "modules"):
            await bench.modules.stop()


@pytest.fixture
async def place(
    tmp_path: Path, home: Path, key: FleetKey, provisioner: Provisioner, database_name: str
) -> AsyncIterator[Place]:
    """Where the fixture butler is a whole daemon; those still running are stopped after the test."""
    made = Place(tmp_path / "butlers", home, key, provisioner, database_name)
    yield made
    for butler in made.butlers:
        await butler.stop()


@pytest.fixture
def start(place: Place) -> Start:
    """Writes the fixture butler and starts it."""
    return place.start
