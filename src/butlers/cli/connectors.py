"""``butlers connectors``: how those are that bring messages in."""

from __future__ import annotations

from typing import Annotated

import typer

from butlers.cli.clients import SWITCHBOARD, ask
from butlers.cli.output import print_rows

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def connectors(as_json: AsJson = False) -> None:
    """The connectors that bring messages in: how each is, and what the door saw of it."""
    found = ask(SWITCHBOARD, "connectors_list")["connectors"]
    print_rows(found, ("kind", "endpoint", "health", "why", "heartbeat_at", "last_minute"), as_json)
