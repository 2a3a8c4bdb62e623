"""``butlers demo``: a fleet with an invented life in a folder of its own. No key, no network."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.fleet import load_butler, owner_client
from butlers.cli.output import print_line, print_message
from butlers.cli.serve import Progress, prepare_home, print_dashboard_link, serve_fleet
from butlers.config.settings import Settings
from butlers.demo import DemoCall, invented_life
from butlers.domain.errors import AlreadyRunning, ButlersError, ConfigError

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig
    from butlers.config.fleet import FleetConfig
    from butlers.daemon.butler import Butler

MARK = "DEMO"
NOTE = "All people, payments and measurements in this folder are invented by `butlers demo`.\n"
COMPLETE = "complete\n"
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "BUTLERS_LOG", "XDG_CACHE_HOME")
FIRST_OFFSET, STEP, TRIES = -20_000, 10, 100  # below the ports that the system hands out
PORTS = range(40100, 40110)
TO_TRY = (
    "how much did I spend on food last month compared to this month",
    "what do you know about Alice?",
    "average weight last 30 days",
    "who owes me money?",
    "duplicate payments",
    "spent 12.50 on lunch",
)


def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Keep the demo in this folder and continue it.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Do not delete the folder at the end.")
    ] = False,
) -> None:
    """Start a fleet with an invented life of six months, to try things out. Ctrl-C ends it."""
    started = time.monotonic()
    home = _home(folder)
    settings = _settings(home)
    prepare_home(settings)
    is_new = not _is_complete(home)
    (home / MARK).write_text(NOTE if is_new else NOTE + COMPLETE)
    try:
        fleet, configs = _roster(settings)
        names = [config.name for config in configs]
        with Progress(names, started, home) as progress:
            seeding = _Seeding(settings, names, is_new, started, progress)
            serve_fleet(
                configs,
                settings,
                fleet,
                logging.WARNING,
                progress.show,
                seeding.begin,
                dashboard=True,
            )
    finally:
        if folder is None and not keep:
            shutil.rmtree(home, ignore_errors=True)
        else:
            print_line(f"The demo is kept in {home}.")


class _Seeding:
    """Fills the fleet when it is up, and then prints what to try."""

    def __init__(
        self,
        settings: Settings,
        names: Sequence[str],
        is_new: bool,
        started: float,
        progress: Progress,
    ) -> None:
        self._settings = settings
        self._names = names
        self._is_new = is_new
        self._started = started
        self._progress = progress
        self._task: asyncio.Task[None] | None = None

    def begin(self, butlers: Sequence[Butler]) -> None:
        self._progress.show(butlers)
        self._progress.end()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            if self._is_new:
                await self._seed()
        except ButlersError as error:
            print_message("error", f"the demo data could not be stored: {error.message}")
            print_message("hint", "Ctrl-C ends the demo; start it again")
            return
        self._print_examples()

    async def _seed(self) -> None:
        calls = invented_life(datetime.now(UTC).date())
        await asyncio.gather(
            *(self._fill(name, [c for c in calls if c.butler == name]) for name in self._names)
        )
        (self._settings.home / MARK).write_text(NOTE + COMPLETE)

    async def _fill(self, name: str, calls: Sequence[DemoCall]) -> None:
        if not calls:
            return
        async with owner_client(self._settings, name) as client:
            for call in calls:
                await client.call(call.tool, call.arguments, timeout_s=60)

    def _print_examples(self) -> None:
        seconds = time.monotonic() - self._started
        print_line(f"The demo is ready after {seconds:.1f} s. All of its data is invented.")
        print_line("Try, in another terminal:")
        command = f"BUTLERS_HOME={shlex.quote(str(self._settings.home))} butlers send"
        for text in TO_TRY:
            print_line(f"  {command} {shlex.quote(text)} --wait")
        print_dashboard_link(self._settings.home)
        print_line("“undo” takes the last change back. Ctrl-C ends the demo.")


def _home(folder: Path | None) -> Path:
    """Return the folder of the demo. Refuses a folder that holds something else."""
    if folder is None:
        temporary = Settings.from_environ().environ.get("TMPDIR") or None
        return Path(tempfile.mkdtemp(prefix="butlers-demo-", dir=temporary))
    home = folder.absolute()
    if home.is_dir() and any(home.iterdir()) and not (home / MARK).exists():
        raise ConfigError(
            f"{home} is not empty and is no demo", hint="choose a new folder with --dir"
        )
    if home.is_dir() and not _is_complete(home):
        shutil.rmtree(home)  # a demo that ended before its data was stored
    return home


def _is_complete(home: Path) -> bool:
    mark = home / MARK
    return mark.exists() and COMPLETE in mark.read_text()


def _settings(home: Path) -> Settings:
    """Return settings without credentials, so that no model is used, and with free ports."""
    given = Settings.from_environ().environ
    kept = {name: given[name] for name in KEPT_VARIABLES if name in given}
    offset = str(_free_offset())
    return Settings.from_environ({**kept, "BUTLERS_HOME": str(home), "BUTLERS_PORT_OFFSET": offset})


def _free_offset() -> int:
    for number in range(TRIES):
        offset = FIRST_OFFSET + number * STEP
        if all(_is_free(port + offset) for port in PORTS):
            return offset
    raise AlreadyRunning("no free ports for the demo", hint="end another demo first")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _roster(settings: Settings) -> tuple[FleetConfig, list[ButlerConfig]]:
    """Load the shipped roster only, without a person's own butlers."""
    from butlers.config.fleet import load_fleet_config
    from butlers.config.overrides import shipped_roster
    from butlers.config.roster import find_butlers

    fleet = load_fleet_config(settings)
    folders = find_butlers(fleet, settings, shipped=shipped_roster(), own=None)
    return fleet, [load_butler(folder, settings, fleet) for folder in folders]
