"""``butlers config``: the configuration that counts, and where each value comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.fleet import find_roster, load_butler
from butlers.cli.output import AsJson, print_json, print_table
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from butlers.config.fleet import FleetConfig

app = typer.Typer(help="Show the configuration of butlers.", no_args_is_help=True)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the butler.")],
    as_json: AsJson = False,
) -> None:
    """Show every setting of a butler with its origin.

    The origin is `shipped` (the butler.toml of the roster), `override` (your changes to it, in
    butlers/NAME.toml of BUTLERS_HOME), `own` (the butler.toml of your own butler), `fleet` (fleet.toml) or
    `default`. Secrets are masked, and variables are shown by their names.
    """
    from butlers.config.effective import effective_values

    settings = Settings.from_environ()
    fleet, folders = find_roster(settings, refresh=False)
    folder = _folder_of(name, folders, settings, fleet)
    rows = [value.as_dict() for value in effective_values(folder, settings, fleet)]
    if as_json:
        print_json(rows)
    else:
        print_table(("key", "value", "origin", "file"), [_row(row) for row in rows])


def _folder_of(
    name: str, folders: tuple[Path, ...], settings: Settings, fleet: FleetConfig
) -> Path:
    named = {_name(folder, settings, fleet): folder for folder in folders}
    if name not in named:
        known = ", ".join(sorted(named))
        raise NotFound(f"there is no butler {name!r}", hint=f"known butlers: {known}")
    return named[name]


def _name(folder: Path, settings: Settings, fleet: FleetConfig) -> str:
    try:
        return load_butler(folder, settings, fleet).name
    except ConfigError:  # reported if it is the butler that is asked for
        return folder.name


def _row(row: dict[str, Any]) -> list[object]:
    value = "" if row["value"] is None else json.dumps(row["value"], ensure_ascii=False)
    place = f"{row['file']}:{row['line']}" if row["line"] else row["file"]
    return [row["key"], value, row["origin"], place]
