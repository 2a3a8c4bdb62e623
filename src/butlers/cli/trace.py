"""``butlers trace``: the whole way of one message, hop by hop, from every butler's own tables."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer

from butlers.cli.clients import ask_all, owner_client, running_butlers
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments, NotFound

Hop = dict[str, Any]


def trace(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As `send` printed it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print each hop of a message: when, where, what was decided, thought, spent and delivered."""
    hops = asyncio.run(_collect(request_id))
    if not hops:
        raise NotFound(
            f"no butler knows the request {request_id}", hint="was it sent to this home?"
        )
    if as_json:
        print_json(hops)
        return
    began = _time(hops[0])
    rows = [
        [f"+{(_time(hop) - began).total_seconds():.3f} s", hop["butler"], hop["hop"], _told(hop)]
        for hop in hops
    ]
    print_table(("when", "butler", "hop", "what"), rows)


async def _collect(request_id: str) -> list[Hop]:
    settings = Settings.from_environ()

    async def of(name: str) -> list[Hop]:
        async with owner_client(settings, name) as client:
            answer = await client.call("request_path", {"request_id": request_id})
        return [{"butler": name, **hop} for hop in answer["hops"]]

    found = await ask_all(running_butlers(settings), of)
    # Its receipt is the beginning, though the transaction that kept it began a moment earlier.
    every = (hop for hops in found for hop in hops)
    return sorted(every, key=lambda hop: (hop["hop"] != "received", _time(hop)))


def _time(hop: Hop) -> datetime:
    try:
        return datetime.fromisoformat(hop["at"])
    except ValueError:
        raise InvalidArguments(f"a hop has no time: {hop['at']!r}") from None


def _told(hop: Hop) -> str:
    return _TELLERS[hop["hop"]](hop)


def _received(hop: Hop) -> str:
    decided = f"for {hop['route_target']} by {hop['route_rule']}: {hop['route_reason']}"
    return f"from {hop['sender']} on {hop['channel']}, {decided if hop['route_target'] else 'open'}"


def _queued(hop: Hop) -> str:
    failed = f": {hop['error']}" if hop["error"] else ""
    return f"{hop['queue']}, {hop['state']}, attempt {hop['attempts']}{failed}"


def _session(hop: Hop) -> str:
    cost = "" if hop["cost_usd"] is None else f", ${float(hop['cost_usd']):.4f}"
    took = "" if hop["duration_ms"] is None else f", {hop['duration_ms'] / 1000:.2f} s"
    failed = f": {hop['error']}" if hop["error"] else ""
    return f"{hop['runtime']}, {hop['outcome'] or 'running'}{took}{cost}{failed}"


def _call(hop: Hop) -> str:
    failed = "" if hop["ok"] else f" failed: {hop['error']}"
    return f"{hop['tool']}{', from the journal' if hop['replayed'] else ''}{failed}"


def _delivery(hop: Hop) -> str:
    proof = hop["provider_message_id"]
    return f"{hop['intent']} to {hop['target']}, {f'delivered as {proof}' if proof else 'not yet'}"


_TELLERS = {
    "received": _received,
    "queued": _queued,
    "session": _session,
    "call": _call,
    "delivery": _delivery,
}
