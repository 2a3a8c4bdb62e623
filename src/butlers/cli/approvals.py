"""``butlers approvals``: what waits for the owner's word, and the word."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from butlers.cli.clients import find_by_beginning, owner_client
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings

app = typer.Typer(help="What waits for your word.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
ActionId = Annotated[str, typer.Argument(metavar="ID", help="Its id, or the beginning of it.")]

MESSENGER = "messenger"


@app.command(name="list")
def list_approvals(
    every: Annotated[bool, typer.Option("--all", help="Decided and expired ones too.")] = False,
    as_json: AsJson = False,
) -> None:
    """What waits for your word, newest first."""
    found = asyncio.run(_list(every))
    if as_json:
        print_json(found)
        return
    columns = ("id", "state", "kind", "expires_at", "summary")
    print_table(columns, [[action[column] for column in columns] for action in found])


@app.command()
def approve(action: ActionId, as_json: AsJson = False) -> None:
    """Let it go out. It is on its way when this returns."""
    _say(asyncio.run(_decide(action, "approve")), as_json)


@app.command()
def reject(action: ActionId, as_json: AsJson = False) -> None:
    """Never send it."""
    _say(asyncio.run(_decide(action, "reject")), as_json)


def _say(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    sent = f", on its way: {', '.join(done['deliveries'])}" if done["deliveries"] else ""
    typer.echo(f"{done['decision']} {done['id']}{sent}")


async def _list(every: bool) -> list[dict[str, Any]]:
    async with owner_client(Settings.from_environ(), MESSENGER) as client:
        arguments = {"include_decided": every, "limit": 500}
        found: list[dict[str, Any]] = (await client.call("approvals_list", arguments))["approvals"]
        return found


async def _decide(beginning: str, decision: str) -> dict[str, Any]:
    ids = [action["id"] for action in await _list(every=True)]
    chosen = find_by_beginning(beginning, ids, "pending actions", "butlers approvals list")
    async with owner_client(Settings.from_environ(), MESSENGER) as client:
        done: dict[str, Any] = await client.call(
            "approvals_decide", {"id": chosen, "decision": decision}
        )
        return done
