"""``butlers deliveries``: outgoing messages."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from butlers.cli.fleet import LONGEST_LIST, call_tool, find_by_prefix
from butlers.cli.output import AsJson, print_json, print_line, print_rows
from butlers.domain.delivery import DeliveryState
from butlers.domain.queues import MESSENGER

deliveries_app = typer.Typer(
    help="List outgoing messages and send one again.", no_args_is_help=True
)
DeliveryId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a delivery, or the start of the id.")
]


@deliveries_app.command(name="list")
def list_deliveries(
    state: Annotated[
        DeliveryState | None, typer.Option(help="Only deliveries in this state.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first: recipient, state and reason."""
    found = call_tool(MESSENGER, "deliveries_list", state=state and str(state), limit=LONGEST_LIST)[
        "deliveries"
    ]
    columns = ("delivery_id", "state", "intent", "channel", "target", "attempts", "reason")
    print_rows(found, columns, as_json)


@deliveries_app.command()
def show(delivery: DeliveryId) -> None:
    """Show one delivery with all its attempts, as JSON."""
    print_json(_call_on_delivery(delivery, "deliveries_get"))


@deliveries_app.command()
def resend(delivery: DeliveryId) -> None:
    """Send a delivery once more. If it arrived before, it arrives a second time."""
    done = _call_on_delivery(delivery, "deliveries_resend")
    print_line(f"sending again: {done['id']}")


def _call_on_delivery(given: str, tool: str) -> Any:
    found = call_tool(MESSENGER, "deliveries_list", limit=LONGEST_LIST)["deliveries"]
    ids = [delivery["delivery_id"] for delivery in found]
    chosen = find_by_prefix(given, ids, "deliveries", "butlers deliveries list")
    return call_tool(MESSENGER, tool, id=chosen)
