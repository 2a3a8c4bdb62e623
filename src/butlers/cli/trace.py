"""``butlers trace``: the whole way of one message, hop by hop, from every butler's own tables."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer

from butlers.cli.clients import known_butlers, owner_client
from butlers.cli.everyone import Answers, ask_all, whole_id
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments, NotFound

Hop = dict[str, Any]


def trace(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As `send` printed it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print each hop of a message: when, where, what was decided, thought, spent and delivered."""
    known = whole_id(request_id)
    if known is None:
        raise InvalidArguments(
            f"{request_id!r} is no request id",
            hint="it has 32 hexadecimal digits; `butlers send` prints it",
        )
    answers = asyncio.run(_ask(known))
    hops = _in_order(answers)
    if not hops and not answers.failed:
        raise NotFound(f"no butler knows the request {known}", hint="was it sent to this home?")
    if as_json:
        print_json(hops)
    else:
        print_table(("when", "butler", "hop", "what"), [_row(hop, hops[0]) for hop in hops])
    answers.tell_failures()


def _row(hop: Hop, first: Hop) -> list[str]:
    # A hop may be on record a moment before the receipt: transactions begin before they end.
    after = max(0.0, (_time(hop) - _time(first)).total_seconds())
    return [f"+{after:.3f} s", hop["butler"], hop["hop"], _told(hop)]


async def _ask(request_id: str) -> Answers[list[Hop]]:
    settings = Settings.from_environ()

    async def of(name: str) -> list[Hop]:
        async with owner_client(settings, name) as client:
            answer = await client.call("request_path", {"request_id": request_id})
        return [{"butler": name, **hop} for hop in answer["hops"]]

    return await ask_all(await known_butlers(settings), of)


def _in_order(answers: Answers[list[Hop]]) -> list[Hop]:
    # Its receipt is the beginning, though the transaction that kept it began a moment earlier.
    every = (hop for hops in answers.found.values() for hop in hops)
    return sorted(every, key=lambda hop: (hop["hop"] != "received", _time(hop)))


def _time(hop: Hop) -> datetime:
    try:
        return datetime.fromisoformat(hop["at"])
    except ValueError:
        raise InvalidArguments(f"a hop has no time: {hop['at']!r}") from None


def _told(hop: Hop) -> str:
    return _TELLERS[hop["hop"]](hop)


def _received(hop: Hop) -> str:
    roles = f" ({', '.join(hop['sender_roles'])})" if hop["sender_roles"] else ""
    why = f": {hop['state_reason']}" if hop["state_reason"] else ""
    return f"from {hop['sender']}{roles} on {hop['channel']}, {hop['state']}{why}"


def _decided(hop: Hop) -> str:
    part = f", the part {hop['part']!r}" if hop["part"] else ""
    after = ", after the part before it" if hop["after_previous"] else ""
    return f"for {hop['target']} by {hop['rule']}: {hop['reason']}{part}{after}"


def _queued(hop: Hop) -> str:
    failed = f": {hop['error']}" if hop["error"] else ""
    told = f", /{hop['command']}" if hop.get("command") else ""
    return f"{hop['queue']}{told}, {hop['state']}, attempt {hop['attempts']}{failed}"


def _session(hop: Hop) -> str:
    cost = "" if hop["cost_usd"] is None else f", ${float(hop['cost_usd']):.4f}"
    took = "" if hop["duration_ms"] is None else f", {hop['duration_ms'] / 1000:.2f} s"
    failed = f": {hop['error']}" if hop["error"] else ""
    return f"{hop['runtime']}, {hop['outcome'] or 'running'}{took}{cost}{failed}"


def _call(hop: Hop) -> str:
    failed = "" if hop["ok"] else f" failed: {hop['error']}"
    return f"{hop['tool']}{', from the journal' if hop['replayed'] else ''}{failed}"


def _delivery(hop: Hop) -> str:
    proof = f" as {hop['provider_message_id']}" if hop["provider_message_id"] else ""
    why = f": {hop['reason']}" if hop["reason"] else ""
    until = f", not before {hop['not_before']}" if hop["not_before"] else ""
    return f"{hop['intent']} to {hop['target']}, {hop['state']}{proof}{why}{until}"


def _attempt(hop: Hop) -> str:
    failed = f": {hop['error']}" if hop["error"] else ""
    said = f" ({hop['response']})" if hop["response"] else ""
    return f"number {hop['number']} to {hop['target']}, {hop['outcome'] or 'open'}{failed}{said}"


_TELLERS = {
    "received": _received,
    "decided": _decided,
    "queued": _queued,
    "session": _session,
    "call": _call,
    "delivery": _delivery,
    "attempt": _attempt,
}
