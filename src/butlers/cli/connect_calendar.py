"""``butlers connect caldav`` and ``butlers connect ics``: calendars, set up step by step."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

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
    from butlers.modules.calendar.sync.dav import FoundCalendar

BUTLER = "general"  # keeps the calendar

CalendarName = Annotated[str, typer.Option("--name", help="Name of the calendar here.")]
SharedFlag = Annotated[
    bool, typer.Option("--shared", help="Other people see it: changes wait for your approval.")
]


def add_commands(connect_app: typer.Typer, disconnect_app: typer.Typer) -> None:
    connect_app.command(name="caldav")(connect_caldav)
    connect_app.command(name="ics")(connect_ics)
    disconnect_app.command(name="calendar")(disconnect_calendar)


def connect_caldav(
    url: Annotated[str, typer.Argument(help="Address of the server, or of the calendar.")],
    user: Annotated[str, typer.Argument(help="User name at the server.")],
    name: CalendarName = "caldav",
    calendar: Annotated[
        str | None, typer.Option(help="Name of the calendar there, if there are several.")
    ] = None,
    shared: SharedFlag = False,
    secret_stdin: SecretStdin = False,
) -> None:
    """Connect a calendar on a CalDAV server. It is read and written."""
    from butlers.modules.calendar.sync.dav import DavClient

    check_address(url)
    _check_name(name)
    secret = secret_name("CALDAV", name)
    password = ask_secret(secret, f"Password of {user}", secret_stdin)

    async def prove() -> tuple[FoundCalendar, int]:
        print_line(f"1. Looking for calendars at {url} …")
        async with DavClient(url, user, password) as client:
            chosen = _choose(await client.find_calendars(), calendar)
        store_secret(secret, password)
        print_line(f"2. Reading {chosen.name!r} …")
        async with DavClient(chosen.url, user, password) as client:
            return chosen, len((await client.everything()).changed)

    chosen, count = asyncio.run(prove())
    table = {"kind": "caldav", "url": chosen.url, "username": user, "secret": secret}
    _keep(name, {**table, **({"shared": True} if shared else {})})
    print_line(f"3. Connected: {chosen.name}, {count} events and series at {chosen.url}")
    print_message("hint", RESTART)


def connect_ics(
    url: Annotated[str, typer.Argument(help="Address of the feed (https:// or webcal://).")],
    name: CalendarName = "feed",
) -> None:
    """Connect a calendar feed. It is read, never written."""
    from butlers.domain.clock import uuid7
    from butlers.modules.calendar.ical import read_ical
    from butlers.modules.calendar.sync.feed import fetch_feed

    check_address(url, "webcal")
    _check_name(name)
    print_line(f"1. Reading {url} …")
    text, _ = asyncio.run(fetch_feed(url))
    file = read_ical(text or "", uuid7(), "UTC")
    _keep(name, {"kind": "ics", "url": url})
    print_line(f"2. Connected: {len(file.events)} events and series")
    for problem in file.problems[:5]:
        print_message("warning", f"not readable: {problem}")
    print_message("hint", RESTART)


def disconnect_calendar(name: CalendarName) -> None:
    """Disconnect a calendar, delete its password and the copy of its events."""
    _keep(name, None)
    forget_secret(secret_name("CALDAV", name))
    print_line(f"calendar {name}: disconnected")
    print_message("hint", "restart the fleet (`butlers up`)")


def _choose(found: list[FoundCalendar], wanted: str | None) -> FoundCalendar:
    named = [one for one in found if wanted is None or wanted in (one.name, one.url)]
    if len(named) == 1:
        return named[0]
    known = ", ".join(one.name for one in found) or "none"
    what = "there is no such calendar" if not named else "there are several calendars"
    raise InvalidArguments(what, hint=f"give --calendar with one of: {known}")


def _check_name(name: str) -> None:
    if name == "local" or not name.replace("-", "").isalnum():
        raise InvalidArguments(
            f"a calendar cannot be named {name!r}", hint="use letters, digits and hyphens"
        )


def _keep(name: str, table: dict[str, Any] | None) -> None:
    place = ("modules", "calendar", "accounts", name)
    set_table(BUTLER, Settings.from_environ().home, place, table)
