"""``butlers contacts``: who may write to the owner, and who waits to be let in."""

from __future__ import annotations

from typing import Annotated

import typer

from butlers.cli.clients import SWITCHBOARD, ask
from butlers.cli.output import print_rows, say

app = typer.Typer(help="Who may write to you.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ChannelName = Annotated[str, typer.Argument(metavar="CHANNEL", help="For example email.")]
Identity = Annotated[str, typer.Argument(metavar="IDENTITY", help="The address there.")]


@app.command(name="list")
def list_contacts(as_json: AsJson = False) -> None:
    """Everybody that is known, and the addresses they write from."""
    print_rows(
        ask(SWITCHBOARD, "contacts_list")["contacts"],
        ("name", "roles", "channel", "identity"),
        as_json,
    )


@app.command()
def waiting(as_json: AsJson = False) -> None:
    """Strangers whose messages are held until you decide."""
    found = ask(SWITCHBOARD, "contacts_waiting")["waiting"]
    print_rows(found, ("channel", "sender", "messages", "since", "latest"), as_json)


@app.command()
def allow(
    channel: ChannelName,
    identity: Identity,
    name: Annotated[str | None, typer.Option(help="How you call them.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="It is an address of your own.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a sender in; what was held of them is dealt with now."""
    role = "owner" if mine else "contact"
    done = ask(
        SWITCHBOARD, "contacts_allow", channel=channel, identity=identity, name=name, role=role
    )
    say(done, f"{identity} is let in as {role}; {done['released']} held messages go on", as_json)


@app.command()
def block(channel: ChannelName, identity: Identity, as_json: AsJson = False) -> None:
    """Never let a sender in. What they write is kept, and nothing is done with it."""
    done = ask(SWITCHBOARD, "contacts_block", channel=channel, identity=identity)
    say(
        done, f"{identity} is blocked; {done['skipped']} held messages stay where they are", as_json
    )
