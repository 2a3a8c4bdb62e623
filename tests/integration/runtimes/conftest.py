"""Real CLIs against a real butler and a fake model, without a network."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey
from support import npm
from support.cli_butler import CliButler, OpenCliButler
from support.cli_session import CliSession
from support.clis import CLIS, Cli
from support.fake_model import FakeModel, fake_model
from support.in_process import InProcessButler
from support.offline import offline
from support.tester_folder import write_tester, write_versions

__all__ = ["offline"]


@pytest.fixture(params=CLIS, ids=lambda cli: cli.name)
def cli(request: pytest.FixtureRequest) -> Cli:
    """Each CLI in turn."""
    chosen: Cli = request.param
    return chosen


@pytest.fixture
def executable(cli: Cli) -> Path:
    return npm.installed("clis") / cli.program


@pytest.fixture
def private() -> Iterator[Path]:
    """A session's own folder, with a short path for the sockets that a CLI puts there."""
    path = Path(tempfile.mkdtemp(prefix="bs-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def tester(
    offline: None,
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    prepared: None,
) -> AsyncIterator[InProcessButler]:
    """A butler at work, in the same place without a network as the CLI."""
    write_versions(tmp_path / "versions")
    write_tester(tmp_path / "tester", database_name)
    made = InProcessButler(tmp_path / "tester", home, key, provisioner, tmp_path / "versions")
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def model(offline: None) -> AsyncIterator[FakeModel]:
    async with fake_model() as made:
        yield made


@pytest.fixture
def open_cli_butler(
    offline: None,
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    model: FakeModel,
    prepared: None,
) -> OpenCliButler:
    """A butler that thinks with a CLI; what its folder has beside is put there by ``furnish``."""

    @asynccontextmanager
    async def opened(
        cli: Cli,
        runtime: str = "",
        furnish: Callable[[InProcessButler], None] | None = None,
        *,
        brokered: bool = False,
    ) -> AsyncIterator[CliButler]:
        butler = CliButler.create(
            tmp_path,
            home,
            key,
            provisioner,
            database_name,
            cli=cli,
            model=model,
            runtime=runtime,
        )
        if furnish is not None:
            furnish(butler)
        async with butler.running(brokered=brokered):
            yield butler

    return opened


@pytest.fixture
def cli_session(
    tester: InProcessButler, model: FakeModel, cli: Cli, executable: Path, private: Path
) -> CliSession:
    return CliSession(tester, model, cli, cli.adapter(executable), private)
