"""Real butlers on a port and in a database of their own."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from butlers.config.butler import load_butler_config
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.migrations import shipped_versions
from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support.prepared import key, prepared

__all__ = ["key", "prepared"]

MakeBareButler = Callable[..., Butler]


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """A versions folder of the test's own: the core chain, and what the test adds."""
    folder = tmp_path / "versions"
    shutil.copytree(shipped_versions() / "core", folder / "core")
    shutil.rmtree(folder / "core" / "__pycache__", ignore_errors=True)
    return folder


@pytest.fixture
async def make_bare_butler(
    tmp_path: Path, home: Path, key: FleetKey, provisioner: Provisioner, database_name: str
) -> AsyncIterator[MakeBareButler]:
    """Makes a butler that is not started yet, on any free port; stops it after the test."""
    made: list[Butler] = []

    def make(name: str, *, versions: Path | None = None, schema: str | None = None) -> Butler:
        folder = tmp_path / "butlers" / name
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["[butler]", f'name = "{name}"', "port = 0", "[butler.db]"]
        lines += [f'name = "{database_name}"', f'schema = "{schema}"' if schema else ""]
        lines += ["[runtime]", 'type = "reflex"']
        (folder / "butler.toml").write_text("\n".join(lines))
        config = load_butler_config(folder, Settings(home))
        butler = Butler(
            config, settings=Settings(home), key=key, provisioner=provisioner, versions=versions
        )
        made.append(butler)
        return butler

    yield make
    for butler in made:
        await butler.stop()
