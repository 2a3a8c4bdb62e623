"""``butlers roster``: check the conventions of the shipped roster, or of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.output import AsJson, print_json, print_line
from butlers.config.settings import Settings
from butlers.domain.diagnostic import Severity
from butlers.domain.errors import ConfigMissing

app = typer.Typer(help="Check the roster's conventions.", no_args_is_help=True)


@app.callback()
def roster() -> None:
    """Check the roster's conventions."""


@app.command()
def check(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="The roster; default: the shipped one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report every violation of the conventions. Exits with 1 if one of them is an error."""
    from butlers.config.overrides import shipped_roster
    from butlers.daemon.roster_check import check_roster

    root = folder or shipped_roster()
    if not root.is_dir():
        raise ConfigMissing(f"there is no roster {root}", path=root, hint="name its folder")
    found = check_roster(root, Settings.from_environ())
    if as_json:
        print_json([one.as_dict() for one in found])
    else:
        for one in found:
            print_line(str(one))
        if not found:
            print_line("the roster follows all conventions")
    if any(one.severity is Severity.ERROR for one in found):
        raise typer.Exit(1)
