"""``butlers up`` and ``butlers run``: the fleet in one process, or one butler in its own."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.config.settings import Settings
from butlers.domain import faults
from butlers.domain.errors import AlreadyRunning, ConfigError

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig
    from butlers.config.fleet import FleetConfig
    from butlers.daemon.butler import Butler

Report = Callable[[Sequence["Butler"]], None]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every step.")]


def _quiet(_butlers: Sequence[Butler]) -> None:
    return None


def up(verbose: Verbose = False) -> None:
    """Start the whole fleet in this terminal. Ctrl-C stops it."""
    started = time.monotonic()
    settings = Settings.from_environ()
    _prepare(settings)
    with _only_one(settings.home):
        from butlers.cli.progress import Progress
        from butlers.cli.roster import load_roster

        fleet, configs = load_roster(settings)
        with Progress([config.name for config in configs], started) as progress:
            level = logging.INFO if verbose else logging.WARNING
            _serve(configs, settings, fleet, level, progress.show, progress.finish)


def run(
    config: Annotated[Path, typer.Option(help="The butler's folder, with its butler.toml.")],
) -> None:
    """Start one butler in a process of its own."""
    from butlers.cli.roster import load_one
    from butlers.config.fleet import load_fleet_config

    settings = Settings.from_environ()
    _prepare(settings)
    fleet = load_fleet_config(settings)
    _serve([load_one(config, settings, fleet)], settings, fleet, logging.INFO)


def _serve(
    configs: Sequence[ButlerConfig],
    settings: Settings,
    fleet: FleetConfig,
    level: int,
    report: Report = _quiet,
    ready: Report = _quiet,
) -> None:
    from butlers.daemon.logs import configure_logs
    from butlers.db.server import warming_up
    from butlers.wire.telemetry import collecting

    configure_logs(settings, level=level)
    with warming_up(settings):
        from butlers.daemon.fleet import Fleet  # a second of imports, while the database starts

        async def serve() -> None:
            await Fleet(configs, settings, fleet, report=report).run(ready)

        with collecting(settings):
            asyncio.run(serve())


def _prepare(settings: Settings) -> None:
    faults.arm(settings.kill_point)
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"the home folder {settings.home} can not be made: {error.strerror}",
            hint="set BUTLERS_HOME to a folder that you may write to",
        ) from error


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """One fleet per home. The lock is the kernel's, so a killed fleet leaves nothing to clean up."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode().strip()
            raise AlreadyRunning(
                f"a fleet already runs from {home} (process {holder or 'unknown'})",
                hint="talk to it with `butlers send`, or give this one another BUTLERS_HOME and"
                " BUTLERS_PORT_OFFSET",
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)
