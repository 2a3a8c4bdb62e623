"""``butlers connect`` and ``butlers disconnect``: channels to the outside, set up step by step.

Each finished step is kept, so that a command that failed can be run again. No secret is an argument.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli import connect_calendar, connect_contacts
from butlers.cli.accounts import (
    RESTART,
    SecretStdin,
    ask_secret,
    forget_secret,
    read_stdin,
    store_secret,
)
from butlers.cli.output import ask_number, confirm, print_line, print_message
from butlers.config.overrides import set_table
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments
from butlers.domain.queues import MESSENGER, SWITCHBOARD

if TYPE_CHECKING:
    from butlers.channels.email.config import EmailOutbound
    from butlers.channels.email.presets import MailPreset

connect_app = typer.Typer(
    help="Connect a channel, an address book or a calendar.", no_args_is_help=True
)
disconnect_app = typer.Typer(
    help="Disconnect a channel, an address book or a calendar.", no_args_is_help=True
)
connect_contacts.add_commands(connect_app, disconnect_app)
connect_calendar.add_commands(connect_app, disconnect_app)

TELEGRAM_TOKEN = "TELEGRAM_BOT_TOKEN"

Mailbox = Annotated[str, typer.Option("--name", help="Name of the mailbox, if you have several.")]


# -- Telegram -----------------------------------------------------------------------------------------


@connect_app.command(name="telegram")
def connect_telegram(
    secret_stdin: SecretStdin = False,
    wait_s: Annotated[float, typer.Option(help="Seconds to wait for the code.")] = 600.0,
    api_url: Annotated[
        str | None, typer.Option(help="Address of a Bot API server of your own.")
    ] = None,
) -> None:
    """Connect a Telegram bot and pair it with your account."""
    from butlers.channels.telegram.api import API_URL, BotApi
    from butlers.channels.telegram.pairing import Pairing
    from butlers.domain.clock import SystemClock

    print_line("1. In Telegram, write /newbot to @BotFather and follow it. It gives you a token.")
    token = ask_secret(TELEGRAM_TOKEN, "Token of the bot", secret_stdin)
    api = BotApi(token, api_url or API_URL)

    async def pair() -> Any:
        me = await api.call("getMe", {})
        await api.call("deleteWebhook", {"drop_pending_updates": False})
        store_secret(TELEGRAM_TOKEN, token)
        pairing = Pairing(api, SystemClock())
        name = me["username"]
        print_line(f"2. Send this code to @{name}: {pairing.code}")
        print_line(f"   or open https://t.me/{name}?start={pairing.code}")
        return await pairing.wait(wait_s)

    paired = asyncio.run(pair())
    own_api = {"api_url": api_url} if api_url else {}
    home = Settings.from_environ().home
    set_table(MESSENGER, home, ("channels", "telegram"), {"token": TELEGRAM_TOKEN, **own_api})
    set_table(MESSENGER, home, ("delivery",), {"owner": f"telegram:{paired.chat}"})
    set_table(
        SWITCHBOARD,
        home,
        ("connectors", "telegram"),
        {"token": TELEGRAM_TOKEN, "owners": [paired.user], **own_api},
    )
    print_line(
        f"3. Paired with {paired.name or paired.user}; the bot's answer is {paired.message_id}."
    )
    print_message("hint", RESTART)


@disconnect_app.command(name="telegram")
def disconnect_telegram() -> None:
    """Disconnect the Telegram bot and delete its token. Stored messages stay."""
    home = Settings.from_environ().home
    set_table(MESSENGER, home, ("channels", "telegram"), None)
    set_table(MESSENGER, home, ("delivery", "owner"), None)
    set_table(SWITCHBOARD, home, ("connectors", "telegram"), None)
    forget_secret(TELEGRAM_TOKEN)
    print_line("telegram: disconnected")
    print_message("hint", "revoke the token with @BotFather, and restart the fleet (`butlers up`)")


# -- email --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Servers:
    """Servers that a person names instead of a preset."""

    imap_host: str
    smtp_host: str
    imap_port: int
    smtp_port: int
    imap_security: str
    smtp_security: str


@connect_app.command(name="email")
def connect_email(
    address: Annotated[str, typer.Argument(help="Address of the mailbox.")],
    name: Mailbox = "mail",
    preset: Annotated[
        str | None, typer.Option(help="gmail, outlook, fastmail, icloud or proton.")
    ] = None,
    imap_host: Annotated[str | None, typer.Option(help="IMAP server of another provider.")] = None,
    imap_port: Annotated[int, typer.Option(help="Its port.")] = 993,
    imap_security: Annotated[str, typer.Option(help="tls, starttls or plain.")] = "tls",
    smtp_host: Annotated[str | None, typer.Option(help="SMTP server of another provider.")] = None,
    smtp_port: Annotated[int, typer.Option(help="Its port.")] = 465,
    smtp_security: Annotated[str, typer.Option(help="tls, starttls or plain.")] = "tls",
    auth_server: Annotated[
        list[str] | None, typer.Option(help="Name of the server in Authentication-Results.")
    ] = None,
    owner_address: Annotated[
        list[str] | None, typer.Option(help="Address that you write from, if it is another one.")
    ] = None,
    own_mailbox: Annotated[
        bool,
        typer.Option("--butlers-own", help="The mailbox is the butlers': they answer its mail."),
    ] = False,
    history_days: Annotated[
        int | None, typer.Option(help="Days of older mail to store for search.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(help="Sign in with a browser, as this OAuth client.")
    ] = None,
    secret_stdin: SecretStdin = False,
) -> None:
    """Connect a mailbox. It ends with a mail that the mailbox sends to itself."""
    chosen = _preset(address, preset, imap_host, smtp_host)
    secret_name = f"EMAIL_{name.upper().replace('-', '_')}"
    account = _account(
        address,
        chosen,
        _Servers(
            imap_host or "", smtp_host or "", imap_port, smtp_port, imap_security, smtp_security
        ),
        secret_name,
        client_id,
    )
    secret = _mail_secret(account, chosen, client_id, secret_stdin)

    async def read_secret(_name: str) -> str:
        return secret

    async def prove() -> tuple[str, int]:
        from butlers.channels.email import proof

        print_line(f"1. Logging in to {account.imap_host} …")
        await proof.log_in(account, read_secret)
        store_secret(secret_name, secret)
        print_line(f"2. Sending a mail to {address} through {account.smtp_host} …")
        message_id = await proof.prove(account, read_secret)
        return message_id, await _history(account, read_secret, history_days)

    message_id, days = asyncio.run(prove())
    home = Settings.from_environ().home
    fields = account.model_dump(exclude_none=True, exclude_defaults=True)
    shared = {key: value for key, value in fields.items() if not key.startswith(("smtp_", "sent_"))}
    inbound = {
        **shared,
        "owner_addresses": [*(owner_address or ()), *([] if own_mailbox else [address])],
        "auth_servers": [*(auth_server or ()), *(chosen.auth_servers if chosen else ())],
        "answers": own_mailbox,
        "history_days": days,
    }
    set_table(MESSENGER, home, ("channels", "email", name), fields)
    set_table(SWITCHBOARD, home, ("connectors", "email", name), inbound)
    print_line(f"3. The mail came back: {message_id}")
    print_message("hint", RESTART)


@disconnect_app.command(name="email")
def disconnect_email(name: Mailbox = "mail") -> None:
    """Disconnect a mailbox and delete its password. Stored messages stay."""
    home = Settings.from_environ().home
    set_table(MESSENGER, home, ("channels", "email", name), None)
    set_table(SWITCHBOARD, home, ("connectors", "email", name), None)
    forget_secret(f"EMAIL_{name.upper().replace('-', '_')}")
    print_line(f"email {name}: disconnected")
    print_message("hint", "restart the fleet (`butlers up`)")


def _preset(
    address: str, name: str | None, imap_host: str | None, smtp_host: str | None
) -> MailPreset | None:
    from butlers.channels.email.presets import PRESETS, preset_for, preset_named

    if imap_host and smtp_host:
        return None
    found = preset_named(name) if name else preset_for(address)
    if found is None:
        known = ", ".join(one.name for one in PRESETS)
        raise InvalidArguments(
            f"the servers of {address} are not known",
            hint=f"give --imap-host and --smtp-host, or --preset with one of: {known}",
        )
    return found


def _account(
    address: str,
    preset: MailPreset | None,
    servers: _Servers,
    secret_name: str,
    client_id: str | None,
) -> EmailOutbound:
    from pydantic import ValidationError

    from butlers.channels.email.config import EmailOutbound
    from butlers.wire.codec import describe

    fields: dict[str, Any] = asdict(servers)
    if preset is not None:
        fields = {key: getattr(preset, key) for key in fields} | {"sent_folder": preset.sent_folder}
    if client_id and preset and preset.oauth:
        fields["oauth"] = {"client_id": client_id, "token_url": preset.oauth.token_url}
    try:
        return EmailOutbound(address=address, secret=secret_name, **fields)
    except ValidationError as error:
        raise InvalidArguments(describe(error)) from None


def _mail_secret(
    account: EmailOutbound, preset: MailPreset | None, client_id: str | None, from_stdin: bool
) -> str:
    """Return the password, or the refresh token after signing in with a browser."""
    if preset is not None and preset.needs_oauth and not client_id:
        raise InvalidArguments(
            f"{preset.name} accepts no passwords",
            hint="register an OAuth client there, and give its id with --client-id",
        )
    if account.oauth is None or preset is None or preset.oauth is None:
        hint = f" ({preset.password_hint})" if preset else ""
        return ask_secret(account.secret, f"Password of {account.address}{hint}", from_stdin)
    from butlers.wire.oauth import sign_in

    def show(url: str) -> None:
        print_line(f"Open this address in a browser and sign in: {url}")

    client_secret = read_stdin() if from_stdin else None
    return str(
        asyncio.run(
            sign_in(preset.oauth, account.oauth.client_id, client_secret, account.address, show)
        )
    )


async def _history(account: EmailOutbound, read_secret: Any, days: int | None) -> int:
    """Return how many days of older mail are stored, after saying what that is and costs."""
    from butlers.channels.email import proof

    if days is None:
        if not sys.stdin.isatty():
            return 0
        days = ask_number("How many days of older mail shall be stored?", default=0)
    if days == 0:
        return 0
    since = (datetime.now(UTC) - timedelta(days=days)).date()
    found = await proof.count_history(account, read_secret, since)
    print_line(
        f"   {found.mails:,} older mails, {found.size_bytes / 2**20:,.1f} MB. They are stored for search"
        f" only: no model reads them. (If one did, that would be about {found.tokens:,} tokens.)"
    )
    if sys.stdin.isatty() and not confirm("Store them?"):
        return 0
    return days
