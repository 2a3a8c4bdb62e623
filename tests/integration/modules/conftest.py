"""Fixtures: a butler with modules, on the database server of the test run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from butlers.db.database import Database
from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support.postbox import ModuleHarness, load_config, write_postbox
from support.postbox_butler import PostboxButler, Start
from support.prepared import key, prepared

__all__ = ["key", "prepared"]

MakeModules = Callable[..., ModuleHarness]


@pytest.fixture
async def make_modules(tmp_path: Path, database: Database) -> AsyncIterator[MakeModules]:
    """Create the modules of a fixture butler; stop them after the test."""
    made: list[ModuleHarness] = []

    def make(*arguments: Any, **options: Any) -> ModuleHarness:
        directory = tmp_path / f"postbox{len(made)}"
        write_postbox(directory, *arguments, **options)
        made.append(ModuleHarness(load_config(directory), database))
        return made[-1]

    yield make
    for harness in made:
        if hasattr(harness, "modules"):
            await harness.modules.stop()


@pytest.fixture
async def postbox(
    tmp_path: Path, home: Path, key: FleetKey, provisioner: Provisioner, database_name: str
) -> AsyncIterator[PostboxButler]:
    """The fixture butler as a complete daemon; stopped after the test."""
    made = PostboxButler(tmp_path / "butlers", home, key, provisioner, database_name=database_name)
    yield made
    for butler in made.butlers:
        await butler.stop()


@pytest.fixture
def start(postbox: PostboxButler) -> Start:
    """Write the fixture butler and start it."""
    return postbox.start
