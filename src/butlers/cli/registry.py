"""``butlers registry``: the butlers that the Switchboard knows, and how each is."""

from __future__ import annotations

from typing import Annotated

import typer

from butlers.cli.clients import SWITCHBOARD, ask
from butlers.cli.output import print_rows, say

app = typer.Typer(help="The butlers that the Switchboard knows.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command(name="list")
def list_butlers(as_json: AsJson = False) -> None:
    """Every butler that has registered: active, stale or quarantined, and when it was last heard of."""
    found = ask(SWITCHBOARD, "registry_list")["butlers"]
    print_rows(found, ("name", "state", "last_seen_at", "triggers", "description"), as_json)


@app.command()
def forget(
    name: Annotated[str, typer.Argument(metavar="BUTLER", help="One that is gone for good.")],
    as_json: AsJson = False,
) -> None:
    """Forget a butler that you have removed. What waits for it alone is decided again."""
    done = ask(SWITCHBOARD, "registry_forget", name=name)
    say(done, f"{name} is forgotten; {done['reopened']} messages are decided again", as_json)
