"""``butlers triage``: why a message went where it went, and where it would go now."""

from __future__ import annotations

from typing import Annotated

import typer

from butlers.cli.clients import SWITCHBOARD, ask
from butlers.cli.output import print_json, print_table

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def triage(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As `send` printed it.")],
    as_json: AsJson = False,
) -> None:
    """Why a message went where it went, and where each step of triage would send it now."""
    told = ask(SWITCHBOARD, "triage_explain", request_id=request_id)
    if as_json:
        print_json(told)
        return
    reason = f" ({told['state_reason']})" if told["state_reason"] else ""
    typer.echo(f"then: {told['state']}{reason}")
    for one in told["then"]:
        typer.echo(f"then: for {one['target']} by {one['rule']}: {one['reason']}")
    print_table(
        ("now", "found", "target"),
        [[step["step"], step["found"], step["target"]] for step in told["now"]],
    )
