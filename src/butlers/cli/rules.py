"""``butlers rules``: the owner's rules for what comes in, and those that past decisions suggest."""

from __future__ import annotations

from typing import Annotated

import typer

from butlers.cli.clients import SWITCHBOARD, ask, find_by_beginning
from butlers.cli.output import print_rows, say

app = typer.Typer(help="Your rules for what comes in.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command(name="list")
def list_rules(as_json: AsJson = False) -> None:
    """Your rules in the order in which they are tried, and how often each has acted."""
    found = ask(SWITCHBOARD, "rules_list")["rules"]
    print_rows(
        found,
        ("id", "position", "kind", "header", "value", "channel", "action", "target", "hits"),
        as_json,
    )


@app.command(name="add")
def add_rule(
    kind: Annotated[str, typer.Argument(help="sender, domain, header or pattern.")],
    value: Annotated[
        str, typer.Argument(help="The address, domain, text in a header, or RE2 pattern.")
    ],
    action: Annotated[str, typer.Argument(help="route, skip, metadata_only or low_priority.")],
    target: Annotated[str | None, typer.Argument(help="With route: the butler.")] = None,
    header: Annotated[str | None, typer.Option(help="With kind header: its name.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only on this channel.")] = None,
    position: Annotated[int, typer.Option(help="The lowest is tried first.")] = 100,
    note: Annotated[str, typer.Option(help="Why, for yourself.")] = "",
    as_json: AsJson = False,
) -> None:
    """Add a rule. It counts for the next message."""
    done = ask(
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
    say(done, f"added {done['id']}: {done['rule']}", as_json)


@app.command(name="remove")
def remove_rule(
    rule: Annotated[str, typer.Argument(metavar="ID", help="Its id, or the beginning of it.")],
    as_json: AsJson = False,
) -> None:
    """Take a rule away."""
    ids = [known["id"] for known in ask(SWITCHBOARD, "rules_list")["rules"]]
    chosen = find_by_beginning(rule, ids, "rules", "butlers rules list")
    done = ask(SWITCHBOARD, "rules_remove", id=chosen)
    say(done, f"removed {done['id']}: {done['rule']}", as_json)


@app.command(name="suggest")
def suggest_rules(
    at_least: Annotated[int, typer.Option(help="So many messages, all decided alike.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Rules that the decisions of the last month amount to. None is applied; add those you like."""
    found = ask(SWITCHBOARD, "rules_suggest", at_least=at_least)["suggestions"]
    print_rows(found, ("kind", "value", "channel", "action", "target", "messages"), as_json)
