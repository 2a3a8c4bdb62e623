"""``butlers db``: address and migrations of the database."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import typer

from butlers.cli.fleet import load_roster
from butlers.cli.output import AsJson, print_json, print_line
from butlers.config.settings import Settings
from butlers.domain.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from butlers.config.butler import ButlerConfig

app = typer.Typer(help="Print the address of the database, or migrate it.", no_args_is_help=True)


@app.command()
def url() -> None:
    """Print the administrator's address of the database server, for psql and similar programs.

    The address contains the password: keep it out of shared screens and shell history.
    """
    settings = Settings.from_environ()
    if settings.database_url:
        from butlers.db.server import parse_url

        print_line(parse_url(settings.database_url).server_dsn)
        return
    if not (settings.home / "postgres").exists():
        raise DatabaseUnavailable(
            f"there is no database in {settings.home} yet", hint="`butlers up` creates it"
        )
    from butlers.db.embedded import EmbeddedPostgres

    print_line(EmbeddedPostgres(settings.home).dsn("butlers"))


@app.command()
def migrate(as_json: AsJson = False) -> None:
    """Create the databases and apply pending migrations of every butler, without starting any."""
    from butlers.daemon.logs import configure_logs

    settings = Settings.from_environ()
    configure_logs(settings, level=logging.WARNING)
    fleet, configs = load_roster(settings)
    applied = asyncio.run(_migrate(settings, configs, isolated=fleet.isolation == "roles"))
    if as_json:
        print_json(applied)
        return
    for name, revisions in applied.items():
        print_line(f"{name}: {', '.join(revisions) if revisions else 'up to date'}")


async def _migrate(
    settings: Settings, configs: list[ButlerConfig], *, isolated: bool
) -> dict[str, list[str]]:
    from butlers.db.migrations import butler_chains, migrate, shipped_versions
    from butlers.db.provision import ButlerSchema, Provisioner
    from butlers.db.server import database_server
    from butlers.modules.lifecycle import ModuleSet
    from butlers.wire.tokens import FleetKey

    applied: dict[str, list[str]] = {}
    async with database_server(settings) as admin:
        provisioner = Provisioner(admin, FleetKey.load(settings.home), isolated=isolated)
        for config in configs:
            login = await provisioner.provision(
                ButlerSchema(config.name, config.db.name, config.db.schema)
            )
            versions = shipped_versions()
            done = await migrate(login, butler_chains(config.name, versions))
            for chain in ModuleSet.load(config).chains(versions):
                done += await migrate(login, [chain])
            applied[config.name] = done
    return applied
