"""``butlers deliveries`` and ``approvals``: outgoing messages, and those that wait for the owner."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from butlers.cli.fleet import LONGEST_LIST, Record, call_tool, find_by_prefix
from butlers.cli.output import AsJson, print_json, print_line, print_result, print_rows
from butlers.domain.delivery import DeliveryState
from butlers.domain.queues import MESSENGER

deliveries_app = typer.Typer(
    help="List outgoing messages and send one again.", no_args_is_help=True
)
approvals_app = typer.Typer(
    help="Approve or reject what waits for your decision.", no_args_is_help=True
)

DeliveryId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a delivery, or the start of the id.")
]
ActionId = Annotated[
    str, typer.Argument(metavar="ID", help="Id from `approvals list`, or the start of it.")
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


@approvals_app.command(name="list")
def list_approvals(
    every: Annotated[
        bool, typer.Option("--all", help="Include decided and expired actions.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what waits for your decision, newest first."""
    print_rows(_actions(every), ("id", "state", "kind", "expires_at", "summary"), as_json)


@approvals_app.command()
def approve(action: ActionId, as_json: AsJson = False) -> None:
    """Approve an action. Its message is queued for sending when this returns."""
    _decide(action, "approve", as_json)


@approvals_app.command()
def reject(action: ActionId, as_json: AsJson = False) -> None:
    """Reject an action. Its message is never sent."""
    _decide(action, "reject", as_json)


def _call_on_delivery(given: str, tool: str) -> Any:
    found = call_tool(MESSENGER, "deliveries_list", limit=LONGEST_LIST)["deliveries"]
    ids = [delivery["delivery_id"] for delivery in found]
    chosen = find_by_prefix(given, ids, "deliveries", "butlers deliveries list")
    return call_tool(MESSENGER, tool, id=chosen)


def _actions(every: bool) -> list[Record]:
    found: list[Record] = call_tool(
        MESSENGER, "approvals_list", include_decided=every, limit=LONGEST_LIST
    )["approvals"]
    return found


def _decide(given: str, decision: str, as_json: bool) -> None:
    ids = [action["id"] for action in _actions(every=True)]
    chosen = find_by_prefix(given, ids, "pending actions", "butlers approvals list")
    done = call_tool(MESSENGER, "approvals_decide", id=chosen, decision=decision)
    queued = f", queued: {', '.join(done['deliveries'])}" if done["deliveries"] else ""
    print_result(done, f"{done['decision']} {done['id']}{queued}", as_json)
