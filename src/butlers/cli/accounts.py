"""Accounts that a person connects: their addresses, and their secrets, which are never an argument."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from butlers.cli.output import print_line
from butlers.cli.secrets import with_vault
from butlers.domain.errors import InvalidArguments, NotFound

RESTART = "restart the fleet (`butlers up`) to use it"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

SecretStdin = Annotated[
    bool, typer.Option("--secret-stdin", help="Read the secret from standard input.")
]


def check_address(url: str, *schemes: str) -> None:
    """Raise InvalidArguments unless the address is encrypted or on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise InvalidArguments(
            f"{url!r} is not encrypted: others could read it", hint="start with https://"
        )
    if parts.scheme not in ("https", "http", *schemes) or not parts.hostname:
        raise InvalidArguments(f"{url!r} is not a web address", hint="start with https://")


def secret_name(kind: str, name: str) -> str:
    """Return the name under which the secret of an account is stored."""
    return f"{kind}_{name.upper().replace('-', '_')}"


def ask_secret(name: str, prompt: str, from_stdin: bool) -> str:
    """Return a secret: from standard input, as stored by an earlier run, or by asking."""
    if from_stdin:
        return read_stdin()
    stored = with_vault(lambda vault: vault.read(name))
    if stored is not None:
        print_line(f"   using the stored secret {name}")
        return stored
    if not sys.stdin.isatty():
        raise InvalidArguments("there is no terminal to ask for the secret", hint="--secret-stdin")
    return getpass.getpass(f"{prompt} (not shown): ").strip()


def read_stdin() -> str:
    """Return the first line of standard input."""
    value = sys.stdin.readline().strip()
    if not value:
        raise InvalidArguments("standard input is empty", hint="pipe the secret into the command")
    return value


def store_secret(name: str, value: str) -> None:
    """Store a secret for all butlers. It may be called from inside an event loop."""
    from butlers.domain.redaction import SecretText
    from butlers.secrets.sealed import NewSecret

    secret = NewSecret("shared", name, SecretText(value))
    _in_thread(lambda: with_vault(lambda vault: vault.put([secret])))


def forget_secret(name: str) -> None:
    """Delete a stored secret, if there is one."""
    try:
        with_vault(lambda vault: vault.delete("shared", name))
    except NotFound:
        return


def _in_thread(work: Any) -> None:
    """Run work that has an event loop of its own, from inside another one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
