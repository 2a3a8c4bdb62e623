"""``butlers secrets``: credentials of the butlers, encrypted in the database. No value is ever printed."""

from __future__ import annotations

import asyncio
import getpass
import logging
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from butlers.cli.fleet import load_roster
from butlers.cli.output import AsJson, print_json, print_line, print_message, print_table
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments

if TYPE_CHECKING:
    from butlers.secrets.vault import Vault

T = TypeVar("T")

SHARED = "shared"

app = typer.Typer(
    help="Set, list, delete and import credentials, which are stored encrypted.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="For example ANTHROPIC_API_KEY.", metavar="NAME")]
Scope = Annotated[
    str, typer.Option(help="Name of the one butler that may use it; shared: every butler.")
]


@app.command(name="set")
def set_secret(
    name: Name,
    surplus: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    scope: Scope = SHARED,
    value_stdin: Annotated[
        bool, typer.Option("--value-stdin", help="Read the value from standard input.")
    ] = False,
    category: Annotated[str | None, typer.Option(help="A category of your choice.")] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
) -> None:
    """Store a credential. The value is asked for or read from standard input, never an argument."""
    from butlers.domain.redaction import SecretText
    from butlers.secrets.sealed import NewSecret, check_name

    if surplus or "=" in name:
        raise InvalidArguments(
            "a value is not accepted as an argument: it stays in the shell's history, and other"
            " programs on this machine can read it",
            hint="treat that value as exposed and get a new one; then `butlers secrets set NAME`"
            " asks for it, or `… | butlers secrets set NAME --value-stdin` reads it",
        )
    check_name(name)
    value = SecretText(_read_value() if value_stdin else _ask(name))
    secret = NewSecret(scope, name, value, category, description)
    with_vault(lambda vault: vault.put([secret]))
    print_line(f"{name}: stored for {_readers(scope)}")


@app.command(name="list")
def list_secrets(as_json: AsJson = False) -> None:
    """List the stored credentials, without their values."""
    found = with_vault(lambda vault: vault.entries())
    if as_json:
        print_json([asdict(entry) for entry in found])
        return
    print_table(
        ("scope", "name", "category", "updated", "readable", "description"),
        [
            [
                entry.scope,
                entry.name,
                entry.category,
                entry.updated_at.isoformat(timespec="seconds"),
                "yes" if entry.readable else "no: another key",
                entry.description,
            ]
            for entry in found
        ],
    )


@app.command(name="delete")
def delete_secret(name: Name, scope: Scope = SHARED) -> None:
    """Delete a credential."""
    with_vault(lambda vault: vault.delete(scope, name))
    print_line(f"{name}: deleted for {_readers(scope)}")


@app.command(name="import")
def import_secrets(
    file: Annotated[Path, typer.Argument(help="JSON (env.json), or lines of NAME=value (.env).")],
    scope: Scope = SHARED,
) -> None:
    """Store all credentials of a file, or none if one of them is invalid.

    JSON is {"NAME": "value"}, or {"butler": {"NAME": "value"}} for one butler only.
    """
    from butlers.secrets.import_file import read_secrets_file

    new = read_secrets_file(file, scope)
    with_vault(lambda vault: vault.put(new))
    for secret in new:
        print_line(f"{secret.name}: stored for {_readers(secret.scope)}")
    print_message("hint", f"{file} still holds them in clear text: delete it")


def _readers(scope: str) -> str:
    return "every butler" if scope == SHARED else scope


def _ask(name: str) -> str:
    if not sys.stdin.isatty():
        raise InvalidArguments(
            "there is no terminal to ask for the value",
            hint=f"`… | butlers secrets set {shlex.quote(name)} --value-stdin`",
        )
    try:
        return getpass.getpass(f"{name} (not shown): ")  # turns the echo off before it asks
    except EOFError:
        raise typer.Abort from None


def _read_value() -> str:
    """Read standard input without the newline that ``echo`` adds."""
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InvalidArguments(
            f"the value is not valid UTF-8 at byte {error.start}",
            hint="encode binary data as base64",
        ) from None


def with_vault(work: Callable[[Vault], Awaitable[T]]) -> T:
    """Open the vault of this home, starting the database server if none runs."""
    from butlers.daemon.logs import configure_logs
    from butlers.secrets.vault import open_vault

    settings = Settings.from_environ()
    configure_logs(settings, level=logging.WARNING)
    fleet, configs = load_roster(settings)
    databases = {config.name: config.db.name for config in configs}

    async def run() -> T:
        isolated = fleet.isolation == "roles"
        async with open_vault(settings, databases, isolated=isolated) as vault:
            return await work(vault)

    return asyncio.run(run())
