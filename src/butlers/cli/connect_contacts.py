"""``butlers connect carddav`` and ``butlers connect google``: address books, set up step by step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.accounts import (
    RESTART,
    SecretStdin,
    ask_secret,
    check_address,
    forget_secret,
    secret_name,
    store_secret,
)
from butlers.cli.output import print_line, print_message
from butlers.config.overrides import set_table
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments

if TYPE_CHECKING:
    from butlers.modules.contacts.sources.base import ContactSource
    from butlers.modules.contacts.sources.carddav import AddressBook

BUTLER = "relationship"  # keeps the people

AccountOption = Annotated[str, typer.Option("--name", help="Name, if you have several.")]


def add_commands(connect_app: typer.Typer, disconnect_app: typer.Typer) -> None:
    connect_app.command(name="carddav")(connect_carddav)
    connect_app.command(name="google")(connect_google)
    disconnect_app.command(name="carddav")(disconnect_carddav)
    disconnect_app.command(name="google")(disconnect_google)


def connect_carddav(
    url: Annotated[str, typer.Argument(help="Address of the server, or of the address book.")],
    user: Annotated[str, typer.Argument(help="User name at the server.")],
    name: AccountOption = "carddav",
    book: Annotated[
        str | None, typer.Option(help="Name of the address book, if there are several.")
    ] = None,
    secret_stdin: SecretStdin = False,
) -> None:
    """Connect an address book on a CardDAV server. It is read, never written."""
    from butlers.modules.contacts.sources.carddav import CarddavSource, find_address_books

    check_address(url)
    secret = secret_name("CARDDAV", name)
    password = ask_secret(secret, f"Password of {user}", secret_stdin)

    async def read_password() -> str:
        return password

    async def prove() -> tuple[AddressBook, int]:
        print_line(f"1. Looking for address books at {url} …")
        chosen = _choose(await find_address_books(url, user, password), book)
        store_secret(secret, password)
        print_line(f"2. Reading {chosen.name!r} …")
        return chosen, await _count(CarddavSource(chosen.url, user, read_password))

    chosen, count = asyncio.run(prove())
    table = {"url": chosen.url, "user": user, "secret": secret}
    set_table(BUTLER, Settings.from_environ().home, ("modules", "contacts", "carddav", name), table)
    print_line(f"3. Connected: {chosen.name}, {count} contacts at {chosen.url}")
    print_message("hint", RESTART)


def disconnect_carddav(name: AccountOption = "carddav") -> None:
    """Disconnect an address book and delete its password. People stay."""
    _disconnect("carddav", name, secret_name("CARDDAV", name))


def connect_google(
    address: Annotated[str, typer.Argument(help="Address of the Google account.")],
    client_id: Annotated[str, typer.Option(help="Id of your OAuth client (type: desktop app).")],
    name: AccountOption = "google",
    secret_stdin: SecretStdin = False,
    api_url: Annotated[str | None, typer.Option(hidden=True)] = None,
    authorize_url: Annotated[str | None, typer.Option(hidden=True)] = None,
    token_url: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Connect the contacts of a Google account. You sign in with a browser; the access is read-only."""
    from butlers.modules.contacts.config import PEOPLE_API, GoogleContactsAccount
    from butlers.modules.contacts.sources.google import SCOPE, GoogleSource
    from butlers.wire.oauth import GOOGLE_AUTHORIZE_URL, GOOGLE_TOKEN_URL, OAuthPreset, sign_in

    secret, client_secret_name = secret_name("GOOGLE", name), secret_name("GOOGLE_CLIENT", name)
    client_secret = ask_secret(client_secret_name, "Secret of the OAuth client", secret_stdin)
    token_url = token_url or GOOGLE_TOKEN_URL
    account = GoogleContactsAccount(
        address=address,
        client_id=client_id,
        secret=secret,
        client_secret=client_secret_name,
        api_url=api_url or PEOPLE_API,
        token_url=token_url,
    )
    preset = OAuthPreset(authorize_url or GOOGLE_AUTHORIZE_URL, token_url, SCOPE)

    def show(url: str) -> None:
        print_line(f"1. Open this address in a browser and sign in: {url}")

    async def prove() -> int:
        token = await sign_in(preset, client_id, client_secret, address, show)
        store_secret(client_secret_name, client_secret)
        store_secret(secret, token)
        print_line("2. Reading your contacts …")
        known = {secret: token, client_secret_name: client_secret}

        async def read_secret(wanted: str) -> str:
            return known[wanted]

        return await _count(GoogleSource(account, read_secret))

    count = asyncio.run(prove())
    table = account.model_dump(exclude_none=True, exclude_defaults=True)
    set_table(BUTLER, Settings.from_environ().home, ("modules", "contacts", "google", name), table)
    print_line(f"3. Connected: {address}, {count} contacts")
    print_message("hint", RESTART)


def disconnect_google(name: AccountOption = "google") -> None:
    """Disconnect the contacts of a Google account and delete the access. People stay."""
    forget_secret(secret_name("GOOGLE_CLIENT", name))
    _disconnect("google", name, secret_name("GOOGLE", name))


def _disconnect(kind: str, name: str, secret: str) -> None:
    set_table(BUTLER, Settings.from_environ().home, ("modules", "contacts", kind, name), None)
    forget_secret(secret)
    print_line(f"{kind} {name}: disconnected")
    print_message("hint", "restart the fleet (`butlers up`)")


def _choose(books: list[AddressBook], name: str | None) -> AddressBook:
    chosen = [one for one in books if name in (None, one.name)]
    if len(chosen) != 1:
        names = ", ".join(repr(one.name) for one in books)
        raise InvalidArguments(f"the address books are {names}", hint="choose one with --book NAME")
    return chosen[0]


async def _count(source: ContactSource) -> int:
    """Return the number of contacts, and so prove that they can be read."""
    count = 0
    async for batch in source.pull(None, {}):
        count += sum(one.card is not None for one in batch.cards)
    return count
