"""``butlers init``: a new butler's folder, ready to start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.config.settings import Settings
from butlers.domain.errors import ConfigError, InvalidArguments

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig

OWN, ROSTER = "butlers", "roster"
# 40100 to 40106 belong to the roster, whether each of them ships yet or not.
FREE_PORTS = range(40107, 40200)
ROSTER_PORTS = range(40100, 40107)
ROLES = ("switchboard", "messenger")


def init(
    name: Annotated[str, typer.Argument(help="Lower-case letters, digits and '-'.")],
    port: Annotated[
        int | None, typer.Option(help="Its MCP port; without it the next free one of 401xx.")
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Where to put it; a roster folder gets the full layout.")
    ] = Path(OWN),
) -> None:
    """Make the folder of a new butler."""
    from butlers.cli.scaffold import make_folder, refuse_existing

    _check_name(name)
    folder = directory / name
    refuse_existing(folder, "choose another name, or remove it first")
    settings = replace(Settings.from_environ(), port_offset=0)  # files have ports without it
    others = _other_butlers(directory, settings)
    chosen = _choose_port(others) if port is None else _check_port(port)
    files = _texts(name, chosen, directory)
    make_folder(folder, files, empty=("skills",), check=lambda draft: _load(draft, settings))
    _warn(name, chosen, others)
    typer.echo(f"Made {folder} on port {chosen}. Start it with: butlers run --config {folder}")


def _check_name(name: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    from butlers.config.values import ButlerName

    try:
        TypeAdapter(ButlerName).validate_python(name)
    except ValidationError as error:
        raise InvalidArguments(
            error.errors()[0]["msg"], hint="for example: butlers init garden-diary"
        ) from None
    if name in ROLES:
        raise InvalidArguments(
            f"{name!r} is the name of a part that every fleet has already",
            hint="choose another name",
        )


def _check_port(port: int) -> int:
    if not 1 <= port <= 65535:
        raise InvalidArguments(
            f"{port} is not a port (1 to 65535)", hint="leave --port out for the next free one"
        )
    return port


def _choose_port(others: Mapping[Path, ButlerConfig]) -> int:
    taken = {config.port for config in others.values()}
    for port in FREE_PORTS:
        if port not in taken:
            return port
    raise InvalidArguments(
        f"all ports from {FREE_PORTS[0]} to {FREE_PORTS[-1]} are taken",
        hint="give one with --port",
    )


def _other_butlers(directory: Path, settings: Settings) -> dict[Path, ButlerConfig]:
    """Those that ship, those in butlers/ and those where the new one goes."""
    from butlers.config.roster import shipped_roster

    found: dict[Path, ButlerConfig] = {}
    for folder in (shipped_roster(), Path(OWN), directory):
        for butler in _butlers_in(folder):
            try:
                found[butler] = _load(butler, settings)
            except ConfigError as error:
                typer.echo(f"warning: left out of the port check: {error.message}", err=True)
    return found


def _butlers_in(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.glob("*/butler.toml")):
        if not file.parent.name.startswith("."):
            yield file.parent.resolve()


def _load(folder: Path, settings: Settings) -> ButlerConfig:
    from butlers.config.butler import load_butler_config

    return load_butler_config(folder, settings)


def _texts(name: str, port: int, directory: Path) -> dict[str, str]:
    from butlers.cli.scaffold import class_name, fill
    from butlers.cli.templates import butler

    identifier = name.replace("-", "_")
    has_shared = (directory / "shared" / "AGENTS.md").is_file()
    return fill(
        butler.ROSTER if directory.name == ROSTER else butler.OWN,
        name=name,
        port=port,
        title=name.replace("-", " ").capitalize(),
        identifier=identifier,
        database=f"butler_{identifier}",
        class_name=class_name(name),
        shared="@../shared/AGENTS.md\n\n" if has_shared else "",
    )


def _warn(name: str, port: int, others: Mapping[Path, ButlerConfig]) -> None:
    for folder, config in others.items():
        for what, mine, theirs in (("port", port, config.port), ("name", name, config.name)):
            if mine == theirs:
                typer.echo(
                    f"warning: {config.name} ({folder}) has the {what} {mine} as well;"
                    f" `butlers up` will not start both. Change one of them.",
                    err=True,
                )
    if port in ROSTER_PORTS and port not in {config.port for config in others.values()}:
        typer.echo(f"warning: port {port} is kept for a butler of the roster.", err=True)
