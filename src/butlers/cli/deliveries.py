"""``butlers deliveries``: what went out, what did not and why, and once more on the owner's word."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from butlers.cli.clients import find_by_beginning, owner_client
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings
from butlers.domain.delivery import DeliveryState

app = typer.Typer(help="Deliveries: what went out, and what did not.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
State = Annotated[DeliveryState | None, typer.Option(help="Only those in this state.")]
DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="A delivery's id, or its beginning.")]

MESSENGER = "messenger"


@app.command(name="list")
def list_deliveries(state: State = None, as_json: AsJson = False) -> None:
    """Deliveries, newest first: to whom, in which state and why."""
    found = asyncio.run(_list(state))
    if as_json:
        print_json(found)
        return
    columns = ("delivery_id", "state", "intent", "channel", "target", "attempts", "reason")
    print_table(columns, [[delivery[column] for column in columns] for delivery in found])


@app.command()
def show(delivery: DeliveryId) -> None:
    """One delivery with each of its attempts, as JSON."""
    print_json(asyncio.run(_act(delivery, "deliveries_get")))


@app.command()
def resend(delivery: DeliveryId) -> None:
    """Send it once more. What may have arrived already arrives a second time then."""
    done = asyncio.run(_act(delivery, "deliveries_resend"))
    typer.echo(f"on its way again: {done['id']}")


async def _list(state: DeliveryState | None) -> list[dict[str, Any]]:
    async with owner_client(Settings.from_environ(), MESSENGER) as client:
        arguments = {"state": state and str(state), "limit": 500}
        found: list[dict[str, Any]] = (await client.call("deliveries_list", arguments))[
            "deliveries"
        ]
        return found


async def _act(beginning: str, tool: str) -> Any:
    async with owner_client(Settings.from_environ(), MESSENGER) as client:
        known = (await client.call("deliveries_list", {"limit": 500}))["deliveries"]
        ids = [delivery["delivery_id"] for delivery in known]
        chosen = find_by_beginning(beginning, ids, "deliveries", "butlers deliveries list")
        return await client.call(tool, {"id": chosen})
