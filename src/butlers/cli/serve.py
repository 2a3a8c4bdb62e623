"""``butlers up`` and ``butlers run``: start the fleet in one process, or one butler in its own."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer

from butlers.cli.fleet import check_roles, load_butler, load_roster
from butlers.cli.output import print_line, rich_cell
from butlers.config.settings import Settings, process_environment
from butlers.domain import faults
from butlers.domain.errors import AlreadyRunning, ConfigError

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from butlers.config.butler import ButlerConfig
    from butlers.config.fleet import FleetConfig
    from butlers.daemon.butler import Butler

Report = Callable[[Sequence["Butler"]], None]

EXAMPLE = 'butlers send "weight 80.4 kg" --wait'


def _quiet(_butlers: Sequence[Butler]) -> None:
    return None


def up(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every step.")] = False,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Start although the Switchboard or the Messenger is not in the roster.",
        ),
    ] = False,
) -> None:
    """Start the whole fleet in this terminal. Ctrl-C stops it."""
    started = time.monotonic()
    settings = Settings.from_environ()
    prepare_home(settings)
    with _only_one(settings.home):
        fleet, configs = load_roster(settings)
        if not partial:
            _check_core(configs, settings)
        with Progress([config.name for config in configs], started, settings.home) as progress:
            level = logging.INFO if verbose else logging.WARNING
            serve_fleet(
                configs,
                settings,
                fleet,
                level,
                progress.show,
                progress.finish,
                dashboard=fleet.dashboard,
            )


def run(
    config: Annotated[Path, typer.Option(help="Folder of the butler, with its butler.toml.")],
) -> None:
    """Start one butler in its own process."""
    from butlers.config.fleet import load_fleet_config

    settings = Settings.from_environ()
    prepare_home(settings)
    fleet = load_fleet_config(settings)
    serve_fleet([load_butler(config, settings, fleet)], settings, fleet, logging.INFO)


def _check_core(configs: Sequence[ButlerConfig], settings: Settings) -> None:
    from butlers.config.roster import check_core

    check_core(configs, settings.home)


def serve_fleet(
    configs: Sequence[ButlerConfig],
    settings: Settings,
    fleet: FleetConfig,
    level: int,
    report: Report = _quiet,
    ready: Report = _quiet,
    *,
    dashboard: bool = False,
) -> None:
    from butlers.daemon.logs import configure_logs
    from butlers.db.server import warming_up
    from butlers.process.hardening import forbid_inspection, forget_environment
    from butlers.wire.telemetry import collecting

    forbid_inspection()
    configure_logs(settings, level=level)
    check_roles(configs, settings)
    with warming_up(settings):
        from butlers.daemon.fleet import Fleet  # imports for a second, while the database starts

        async def serve() -> None:
            async with _dashboard(settings, fleet, configs) if dashboard else nullcontext():
                await Fleet(configs, settings, fleet, report=report).run(ready)

        with collecting(settings):
            forget_environment(process_environment())
            asyncio.run(serve())


def _dashboard(
    settings: Settings, fleet: FleetConfig, configs: Sequence[ButlerConfig]
) -> AbstractAsyncContextManager[str | None]:
    from butlers.api.server import serving

    return serving(settings, fleet, configs)


def prepare_home(settings: Settings) -> None:
    faults.arm(settings.kill_point, settings.test_pace)
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            f"the home folder {settings.home} cannot be created: {error.strerror}",
            hint="set BUTLERS_HOME to a folder that you can write to",
        ) from error


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """Allow one fleet per home. The kernel drops the lock of a killed fleet."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode().strip()
            raise AlreadyRunning(
                f"a fleet already runs from {home} (process {holder or 'unknown'})",
                hint="use it with `butlers send`, or set another BUTLERS_HOME and"
                " BUTLERS_PORT_OFFSET for this one",
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        os.close(descriptor)


class Progress:
    """Progress of ``up``: a live table on a terminal, plain lines elsewhere."""

    def __init__(self, names: Sequence[str], started: float, home: Path) -> None:
        self._home = home
        self._states = dict.fromkeys(names, "waiting for the database")
        self._started = started
        self._live = _live_table(self._table()) if sys.stdout.isatty() else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, butlers: Sequence[Butler]) -> None:
        for butler in butlers:
            name = butler.config.name
            phase = butler.phase if butler.failure is None else f"failed: {butler.failure}"
            if self._states[name] != phase:
                self._states[name] = phase
                if self._live is None and (phase == "ready" or butler.failure):
                    place = f" on {butler.url}" if butler.is_ready else ""
                    print_line(f"{name}: {_shown(phase)}{place}")
        if self._live:
            self._live.update(self._table(), refresh=True)

    def end(self) -> None:
        """Leave the last state on the screen."""
        if self._live:
            self._live.stop()
            self._live = None

    def finish(self, butlers: Sequence[Butler]) -> None:
        self.show(butlers)
        seconds = time.monotonic() - self._started
        self.end()
        first = next(butler.url for butler in butlers if butler.is_ready)
        print_line(f"Butlers is up at {first} after {seconds:.1f} s. Ctrl-C stops it.")
        print_line(f"Talk to it from another terminal: {_command()}")
        print_dashboard_link(self._home)

    def _table(self) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        table.add_column("BUTLER")
        table.add_column("STATE")
        for name, state in self._states.items():
            table.add_row(rich_cell(name), rich_cell(_shown(state)))
        return table


def print_dashboard_link(home: Path) -> None:
    """Print a link that signs in once, if the dashboard of this home runs."""
    if (home / "run" / "dashboard.url").exists():
        from butlers.cli.dashboard import sign_in_link

        print_line(f"Dashboard (the link signs you in once): {sign_in_link(home)}")


def _live_table(table: Table) -> Live:
    from rich.live import Live

    return Live(table, transient=False)


def _shown(state: str) -> str:
    if state == "ready":
        return "healthy"
    return state if state.startswith("failed") else f"… {state}"


def _command() -> str:
    """Return the example as it can be typed: with the path of the command if it is not on PATH."""
    own = Path(sys.argv[0]).resolve()
    found = shutil.which("butlers")
    if found and Path(found).resolve() == own:
        return EXAMPLE
    try:
        shown = own.relative_to(Path.cwd())
    except ValueError:
        shown = own
    return EXAMPLE.replace("butlers", shlex.quote(str(shown)), 1)
