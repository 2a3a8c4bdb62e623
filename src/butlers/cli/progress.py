"""What ``up`` shows: a live table of butlers becoming healthy on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from butlers.daemon.butler import Butler

EXAMPLE = 'butlers send "weight 80.4 kg" --wait'


class Progress:
    def __init__(self, names: Sequence[str], started: float) -> None:
        self._states = dict.fromkeys(names, "waiting for the database")
        self._started = started
        self._live = Live(self._table(), transient=False) if sys.stdout.isatty() else None

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
                    typer.echo(f"{name}: {_shown(phase)}{place}")
        if self._live:
            self._live.update(self._table(), refresh=True)

    def finish(self, butlers: Sequence[Butler]) -> None:
        self.show(butlers)
        seconds = time.monotonic() - self._started
        if self._live:
            self._live.stop()
            self._live = None
        first = next(butler.url for butler in butlers if butler.is_ready)
        typer.echo(f"Butlers is up at {first} after {seconds:.1f} s. Ctrl-C stops it.")
        typer.echo(f"Talk to it from another terminal: {_command()}")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        table.add_column("BUTLER")
        table.add_column("STATE")
        for name, state in self._states.items():
            table.add_row(name, _shown(state))
        return table


def _shown(state: str) -> str:
    if state == "ready":
        return "healthy"
    return state if state.startswith("failed") else f"… {state}"


def _command() -> str:
    """The example as this person can type it: with the path of the command when it is not on PATH."""
    import shutil
    from pathlib import Path

    own = Path(sys.argv[0]).resolve()
    found = shutil.which("butlers")
    if found and Path(found).resolve() == own:
        return EXAMPLE
    try:
        shown = own.relative_to(Path.cwd())
    except ValueError:
        shown = own
    return EXAMPLE.replace("butlers", str(shown), 1)
