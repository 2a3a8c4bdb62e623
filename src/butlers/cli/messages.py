"""``butlers send``, ``mail``, ``trace``, ``triage`` and ``dead``: messages, and what became of them."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from butlers.channels.console.connector import ConsoleConnector, Reply
from butlers.cli.fleet import (
    LONGEST_LIST,
    Answers,
    Record,
    call_holder,
    call_tool,
    find_by_prefix,
    full_id,
    known_butlers,
    list_records,
    newest_first,
    owner_client,
)
from butlers.cli.output import (
    AsJson,
    RequestId,
    print_json,
    print_line,
    print_rows,
    print_table,
    print_text,
)
from butlers.cli.waiting import RequestWatch, progress_line
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError, InvalidArguments, InvalidMessage, NotFound
from butlers.domain.queues import MESSENGER, SWITCHBOARD

dead_app = typer.Typer(
    help="List, replay and discard dead letters: work that failed for good.", no_args_is_help=True
)

LetterId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a dead letter, or the start of the id.")
]


class NoReply(ButlersError):
    """No reply came in time."""

    code = "no_reply"


def send(
    text: Annotated[str, typer.Argument(help="Your message; - reads it from standard input.")],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the message's end and print all replies.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for the reply.", min=0, max=86_400)
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Send a message to your butlers."""
    message = _read_stdin() if text == "-" else text
    asyncio.run(_send(Settings.from_environ(), message, timeout if wait else None, as_json))


def mail(
    wait: Annotated[float, typer.Option(help="Seconds to wait for the first one.", min=0)] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Show replies, reminders and questions that no console has shown yet."""
    asyncio.run(_mail(Settings.from_environ(), wait, as_json))


def trace(request_id: RequestId, as_json: AsJson = False) -> None:
    """Show every step of a message: when, in which butler, and with what result and cost."""
    known = full_id(request_id)
    if known is None:
        raise InvalidArguments(
            f"{request_id!r} is not a request id",
            hint="a request id has 32 hexadecimal digits; `butlers send` prints it",
        )
    answers = asyncio.run(_trace(known))
    hops = _in_order(answers)
    if not hops and not answers.failed:
        raise NotFound(
            f"no butler knows the request {known}",
            hint="check BUTLERS_HOME: the message may belong to another home",
        )
    if as_json:
        print_json(hops)
    else:
        rows = [trace_row(hop, hops[0]) for hop in hops]
        print_table(("when", "butler", "hop", "what"), rows)
    answers.exit_on_failures()


def triage(request_id: RequestId, as_json: AsJson = False) -> None:
    """Explain where a message went and why, and where each triage step would send it now."""
    explained = call_tool(SWITCHBOARD, "triage_explain", request_id=request_id)
    if as_json:
        print_json(explained)
        return
    reason = f" ({explained['state_reason']})" if explained["state_reason"] else ""
    print_line(f"then: {explained['state']}{reason}")
    for one in explained["then"]:
        print_line(f"then: for {one['target']} by {one['rule']}: {one['reason']}")
    print_table(
        ("now", "found", "target"),
        [[step["step"], step["found"], step["target"]] for step in explained["now"]],
    )


@dead_app.command(name="list")
def list_dead(as_json: AsJson = False) -> None:
    """List the dead letters of all butlers, newest first."""
    answers = asyncio.run(_list_dead())
    columns = ("id", "butler", "queue", "attempts", "finished_at", "error")
    print_rows(newest_first(answers, "finished_at"), columns, as_json)
    answers.exit_on_failures()


@dead_app.command(name="show")
def show_dead(letter: LetterId) -> None:
    """Show one dead letter in full, as JSON."""
    print_json(asyncio.run(_call_on_dead(letter, "dead_letters_get")))


@dead_app.command()
def replay(letter: LetterId) -> None:
    """Try a dead letter again from the start. Effects that already happened are not repeated."""
    done = asyncio.run(_call_on_dead(letter, "dead_letters_replay"))
    print_line(f"replayed {done['id']}")


@dead_app.command()
def discard(letter: LetterId) -> None:
    """Discard a dead letter for good."""
    done = asyncio.run(_call_on_dead(letter, "dead_letters_discard"))
    print_line(f"discarded {done['id']}")


async def _send(settings: Settings, text: str, wait_s: float | None, as_json: bool) -> None:
    async with (
        owner_client(settings, SWITCHBOARD) as switchboard,
        owner_client(settings, MESSENGER) as messenger,
    ):
        console = ConsoleConnector(switchboard, messenger)
        request_id = await console.send(text)
        if wait_s is None:
            _print_accepted(request_id, as_json)
            return
        events: list[Record] = []
        shows = events.append if as_json else _show_event
        watch = RequestWatch(settings, console, request_id, shows)
        try:
            await watch.until_end(wait_s)
        except ButlersError as error:
            raise NoReply(
                f"no reply: {error.message}; the message is stored as {request_id}",
                hint=error.hint or "`butlers status` shows what is waiting",
            ) from error
        if as_json:
            _print_document(request_id, watch.replies, events, ended=watch.ended)
    if not watch.replies:
        raise NoReply(
            f"no reply within {wait_s:g} s; the message is stored as {request_id}",
            hint="`butlers status` shows what is waiting, `butlers mail` prints a late reply",
        )


def _print_accepted(request_id: UUID, as_json: bool) -> None:
    if as_json:
        print_json({"request_id": str(request_id), "replies": []})
    else:
        print_line(str(request_id))


def _show_event(event: Record) -> None:
    """Print a reply, and on a terminal also the steps before it."""
    if event["event"] == "reply":
        print_text(event["message"])
    elif sys.stderr.isatty() and (line := progress_line(event)):
        print_line(f"· {line}", err=True)


def _print_document(
    request_id: UUID, replies: list[Reply], events: list[Record], *, ended: bool
) -> None:
    documents = [{"origin": reply.origin, "message": reply.message} for reply in replies]
    print_json(
        {
            "request_id": str(request_id),
            "ended": ended,
            "replies": documents,
            "events": events,
        }
    )


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidMessage(
            f"the message is not valid UTF-8 at byte {error.start}", hint="send UTF-8 text"
        ) from None


async def _mail(settings: Settings, wait_s: float, as_json: bool) -> None:
    async with (
        owner_client(settings, SWITCHBOARD) as switchboard,
        owner_client(settings, MESSENGER) as messenger,
    ):
        console = ConsoleConnector(switchboard, messenger)
        printed: list[Reply] = []
        while new := await console.receive(None, 0 if printed else wait_s):
            printed += new
            if not as_json:
                for reply in new:
                    print_text(f"{reply.origin}: {reply.message}")
            await console.shown(new)
    if as_json:
        print_json([{"origin": reply.origin, "message": reply.message} for reply in printed])


async def _list_dead() -> Answers[list[Record]]:
    names = await known_butlers(Settings.from_environ())
    return await list_records(names, "dead_letters_list", {"limit": LONGEST_LIST}, "dead_letters")


async def _call_on_dead(given: str, tool: str) -> Any:
    """Call a tool on one dead letter. A full id is found at any age, the start among the newest."""
    names = await known_butlers(Settings.from_environ())
    letter_id = full_id(given)
    if letter_id is None:
        found = newest_first(await _list_dead(), "finished_at")
        holders = {letter["id"]: letter["butler"] for letter in found}
        letter_id = find_by_prefix(given, list(holders), "dead letters", "butlers dead list")
        names = [holders[letter_id]]
    _name, answer = await call_holder(
        names,
        tool,
        {"id": letter_id},
        f"a dead letter {letter_id}",
        "`butlers dead list` lists them",
    )
    return answer


async def _trace(request_id: str) -> Answers[list[Record]]:
    names = await known_butlers(Settings.from_environ())
    return await list_records(names, "request_path", {"request_id": request_id}, "hops")


def _in_order(answers: Answers[list[Record]]) -> list[Record]:
    # The receipt is the beginning, although its transaction may have begun after a later hop's.
    hops = (hop for hops in answers.found.values() for hop in hops)
    return sorted(hops, key=lambda hop: (hop["hop"] != "received", _time(hop)))


def trace_row(hop: Record, first: Record) -> list[str]:
    # A hop may be recorded a moment before the receipt: a transaction begins before it ends.
    after = max(0.0, (_time(hop) - _time(first)).total_seconds())
    return [f"+{after:.3f} s", hop["butler"], hop["hop"], _DESCRIBE[hop["hop"]](hop)]


def _time(hop: Record) -> datetime:
    try:
        return datetime.fromisoformat(hop["at"])
    except ValueError:
        raise InvalidArguments(
            f"a hop has no valid time: {hop['at']!r}",
            hint="run the same version of butlers for this command and for the fleet",
        ) from None


def _received(hop: Record) -> str:
    roles = f" ({', '.join(hop['sender_roles'])})" if hop["sender_roles"] else ""
    why = f": {hop['state_reason']}" if hop["state_reason"] else ""
    return f"from {hop['sender']}{roles} on {hop['channel']}, {hop['state']}{why}"


def _decided(hop: Record) -> str:
    part = f", the part {hop['part']!r}" if hop["part"] else ""
    after = ", after the previous part" if hop["after_previous"] else ""
    return f"for {hop['target']} by {hop['rule']}: {hop['reason']}{part}{after}"


def _queued(hop: Record) -> str:
    failed = f": {hop['error']}" if hop["error"] else ""
    command = f", /{hop['command']}" if hop.get("command") else ""
    return f"{hop['queue']}{command}, {hop['state']}, attempt {hop['attempts']}{failed}"


def _session(hop: Record) -> str:
    cost = "" if hop["cost_usd"] is None else f", ${float(hop['cost_usd']):.4f}"
    took = "" if hop["duration_ms"] is None else f", {hop['duration_ms'] / 1000:.2f} s"
    failed = f": {hop['error']}" if hop["error"] else ""
    return f"{hop['runtime']}, {hop['outcome'] or 'running'}{took}{cost}{failed}"


def _tool_call(hop: Record) -> str:
    failed = "" if hop["ok"] else f" failed: {hop['error']}"
    return f"{hop['tool']}{', from the journal' if hop['replayed'] else ''}{failed}"


def _delivery(hop: Record) -> str:
    receipt = f" as {hop['provider_message_id']}" if hop["provider_message_id"] else ""
    why = f": {hop['reason']}" if hop["reason"] else ""
    until = f", not before {hop['not_before']}" if hop["not_before"] else ""
    return f"{hop['intent']} to {hop['target']}, {hop['state']}{receipt}{why}{until}"


def _attempt(hop: Record) -> str:
    failed = f": {hop['error']}" if hop["error"] else ""
    response = f" ({hop['response']})" if hop["response"] else ""
    outcome = hop["outcome"] or "open"
    return f"number {hop['number']} to {hop['target']}, {outcome}{failed}{response}"


_DESCRIBE = {
    "received": _received,
    "decided": _decided,
    "queued": _queued,
    "session": _session,
    "call": _tool_call,
    "delivery": _delivery,
    "attempt": _attempt,
}
