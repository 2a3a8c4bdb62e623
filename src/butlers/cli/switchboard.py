"""``butlers rules``, ``contacts``, ``registry`` and ``connectors``: incoming messages and their senders."""

from __future__ import annotations

from typing import Annotated

import typer

from butlers.cli.fleet import call_tool, find_by_prefix
from butlers.cli.output import AsJson, print_result, print_rows
from butlers.domain.queues import SWITCHBOARD

rules_app = typer.Typer(
    help="List and change your rules for incoming messages.", no_args_is_help=True
)
contacts_app = typer.Typer(
    help="List contacts; allow or block senders of messages.", no_args_is_help=True
)
registry_app = typer.Typer(
    help="List or forget the butlers that are registered at the Switchboard.", no_args_is_help=True
)

SenderOrChannel = Annotated[
    str,
    typer.Argument(
        metavar="ID_OR_CHANNEL",
        help="Id that `butlers contacts waiting` shows, or a channel, for example email.",
    ),
]
Identity = Annotated[
    str | None,
    typer.Argument(metavar="[IDENTITY]", help="After a channel: address of the sender on it."),
]


def connectors(as_json: AsJson = False) -> None:
    """Show connector health."""
    found = call_tool(SWITCHBOARD, "connectors_list")["connectors"]
    print_rows(found, ("kind", "endpoint", "health", "why", "heartbeat_at", "last_minute"), as_json)


@rules_app.command(name="list")
def list_rules(as_json: AsJson = False) -> None:
    """List your rules in the order in which they are tried, with the number of matches."""
    found = call_tool(SWITCHBOARD, "rules_list")["rules"]
    print_rows(
        found,
        ("id", "position", "kind", "header", "value", "channel", "action", "target", "hits"),
        as_json,
    )


@rules_app.command(name="add")
def add_rule(
    kind: Annotated[str, typer.Argument(help="sender, domain, header or pattern.")],
    value: Annotated[
        str, typer.Argument(help="The address, domain, text in a header, or RE2 pattern.")
    ],
    action: Annotated[str, typer.Argument(help="route, skip, metadata_only or low_priority.")],
    target: Annotated[str | None, typer.Argument(help="For route: name of the butler.")] = None,
    header: Annotated[
        str | None, typer.Option(help="For the kind header: name of the header.")
    ] = None,
    channel: Annotated[str | None, typer.Option(help="Only for messages on this channel.")] = None,
    position: Annotated[int, typer.Option(help="The lowest position is tried first.")] = 100,
    note: Annotated[str, typer.Option(help="A note for yourself.")] = "",
    as_json: AsJson = False,
) -> None:
    """Add a rule. It applies to the next message."""
    done = call_tool(
        SWITCHBOARD,
        "rules_add",
        kind=kind,
        value=value,
        action=action,
        target=target,
        header=header,
        channel=channel,
        position=position,
        note=note,
    )
    print_result(done, f"added {done['id']}: {done['rule']}", as_json)


@rules_app.command(name="remove")
def remove_rule(
    rule: Annotated[str, typer.Argument(metavar="ID", help="Id of the rule, or the start of it.")],
    as_json: AsJson = False,
) -> None:
    """Remove a rule."""
    ids = [known["id"] for known in call_tool(SWITCHBOARD, "rules_list")["rules"]]
    chosen = find_by_prefix(rule, ids, "rules", "butlers rules list")
    done = call_tool(SWITCHBOARD, "rules_remove", id=chosen)
    print_result(done, f"removed {done['id']}: {done['rule']}", as_json)


@rules_app.command(name="suggest")
def suggest_rules(
    at_least: Annotated[
        int, typer.Option(help="Messages with the same decision that a suggestion needs.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Suggest rules from the decisions of the last month. None is added by this command."""
    found = call_tool(SWITCHBOARD, "rules_suggest", at_least=at_least)["suggestions"]
    print_rows(found, ("kind", "value", "channel", "action", "target", "messages"), as_json)


@contacts_app.command(name="list")
def list_contacts(as_json: AsJson = False) -> None:
    """List all contacts and the addresses they write from."""
    found = call_tool(SWITCHBOARD, "contacts_list")["contacts"]
    print_rows(found, ("name", "roles", "channel", "identity"), as_json)


@contacts_app.command()
def waiting(as_json: AsJson = False) -> None:
    """List unknown senders whose messages are held until you decide."""
    found = call_tool(SWITCHBOARD, "contacts_waiting")["waiting"]
    columns = ("id", "channel", "sender", "name", "warning", "messages", "since", "latest")
    print_rows(found, columns, as_json)


@contacts_app.command()
def allow(
    sender: SenderOrChannel,
    identity: Identity = None,
    name: Annotated[str | None, typer.Option(help="Name of the contact.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="The address is your own.")] = False,
    as_json: AsJson = False,
) -> None:
    """Allow a sender. Messages held from this sender are processed now."""
    channel, identity = _find_sender(sender, identity)
    role = "owner" if mine else "contact"
    done = call_tool(
        SWITCHBOARD, "contacts_allow", channel=channel, identity=identity, name=name, role=role
    )
    message = f"{identity} is allowed as {role}; {done['released']} held messages are processed now"
    print_result(done, message, as_json)


@contacts_app.command()
def block(sender: SenderOrChannel, identity: Identity = None, as_json: AsJson = False) -> None:
    """Block a sender. Messages of this sender are stored and not processed."""
    channel, identity = _find_sender(sender, identity)
    done = call_tool(SWITCHBOARD, "contacts_block", channel=channel, identity=identity)
    message = f"{identity} is blocked; {done['skipped']} held messages stay unprocessed"
    print_result(done, message, as_json)


def _find_sender(given: str, identity: str | None) -> tuple[str, str]:
    """Return channel and address: as given, or those of the held sender with this id."""
    if identity is not None:
        return given, identity
    waiting = call_tool(SWITCHBOARD, "contacts_waiting")["waiting"]
    held = {one["id"]: (one["channel"], one["sender"]) for one in waiting}
    ids = [one["id"] for one in waiting]  # two senders with one id are told apart by address only
    return held[find_by_prefix(given, ids, "held senders", "butlers contacts waiting")]


@registry_app.command(name="list")
def list_registered(as_json: AsJson = False) -> None:
    """List registered butlers: active, stale or quarantined, and when each was last seen."""
    found = call_tool(SWITCHBOARD, "registry_list")["butlers"]
    print_rows(found, ("name", "state", "last_seen_at", "triggers", "description"), as_json)


@registry_app.command()
def forget(
    name: Annotated[str, typer.Argument(metavar="BUTLER", help="A butler that you have removed.")],
    as_json: AsJson = False,
) -> None:
    """Forget a butler that you have removed. Messages that wait for it alone are routed again."""
    done = call_tool(SWITCHBOARD, "registry_forget", name=name)
    message = f"{name} is forgotten; {done['reopened']} messages are routed again"
    print_result(done, message, as_json)
