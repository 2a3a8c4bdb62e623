"""``butlers sessions``, ``stop-all``, ``trigger`` and ``tool``: run, list and stop work of butlers."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from butlers.cli.fleet import (
    LONGEST_LIST,
    Answers,
    Record,
    ask_all,
    call,
    call_holder,
    find_by_prefix,
    full_id,
    list_records,
    newest_first,
    running_butlers,
)
from butlers.cli.output import (
    AsJson,
    print_json,
    print_line,
    print_message,
    print_table,
    print_text,
)
from butlers.config.settings import Settings
from butlers.domain.errors import InvalidArguments
from butlers.wire import directory

app = typer.Typer(
    help="List, show and stop sessions: what each was asked, did and cost.", no_args_is_help=True
)

Butler = Annotated[str, typer.Argument(help="Name of the butler.")]
OnlyButler = Annotated[str | None, typer.Option("--butler", help="Only sessions of this butler.")]
SessionId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a session, or the start of the id.")
]
CALL_S = 10.0
TRIGGER_S = 3600.0


def tool(
    butler: Butler,
    name: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.")],
    arguments: Annotated[
        str, typer.Argument(metavar="[JSON]", help="Arguments of the tool, as a JSON object.")
    ] = "{}",
) -> None:
    """Call one tool of a butler and print its result as JSON."""
    print_json(asyncio.run(call(butler, name, _parse_arguments(arguments))))


def trigger(
    butler: Butler,
    prompt: Annotated[str, typer.Argument(help="What the butler should do.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result.")] = False,
) -> None:
    """Start a session of one butler and print its answer."""
    result = asyncio.run(call(butler, "trigger", {"prompt": prompt}, timeout_s=TRIGGER_S))
    if as_json:
        print_json(result)
    else:
        print_answer(result)
    if not result["success"]:
        raise typer.Exit(1)


def print_answer(result: Mapping[str, Any]) -> None:
    """Print the answer to stdout; the error of a failed session to stderr."""
    if result["output"] or result["success"]:
        print_text(result["output"])
    if not result["success"]:
        print_message("error", result.get("error") or "the session failed without an error message")
        session = str(result.get("session_id", "ID"))
        print_message("hint", f"`butlers sessions show {shlex.quote(session)}` shows more")


@app.command(name="list")
def list_sessions(
    butler: OnlyButler = None,
    running: Annotated[bool, typer.Option("--running", help="Only sessions that run now.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Sessions of each butler.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List recent sessions of all butlers, newest first."""
    answers = asyncio.run(_list(_names(butler), limit, running))
    found = newest_first(answers, "started_at")
    if as_json:
        print_json(found)
    else:
        print_table(
            ("id", "butler", "trigger", "runtime", "outcome", "tokens", "cost", "took"),
            [_row(session) for session in found],
        )
    answers.exit_on_failures()


@app.command()
def show(session: SessionId, butler: OnlyButler = None, as_json: AsJson = False) -> None:
    """Show one session in full: prompt, output, outcome, cost and every tool call."""
    name, known = asyncio.run(_call_on(_names(butler), session, "sessions_get"))
    found = {"butler": name, **known}
    if as_json:
        print_json(found)
        return
    calls = found.pop("tool_calls")
    for key, value in found.items():
        if value not in (None, [], ""):
            print_text(f"{key + ':':17}{value}", indent=17)
    for one in calls:
        print_line(f"  {call_line(one)}")


@app.command()
def stop(session: SessionId, butler: OnlyButler = None) -> None:
    """Stop a running session at once."""
    name, done = asyncio.run(_call_on(_names(butler), session, "sessions_stop", running=True))
    (stopped,) = done["stopped"]
    print_line(f"stopped {stopped} of {name}")


def stop_all(as_json: AsJson = False) -> None:
    """Stop every running session of every butler at once. No model is asked."""
    answers = asyncio.run(
        ask_all(_names(None), lambda name: call(name, "sessions_stop", {}, timeout_s=CALL_S))
    )
    stopped = {name: answer["stopped"] for name, answer in answers.found.items()}
    if as_json:
        failed = {name: str(error) for name, error in answers.failed.items()}
        print_json({"stopped": stopped, "failed": failed})
    else:
        for name, sessions in stopped.items():
            print_line(f"{name}: {len(sessions)} stopped")
    answers.exit_on_failures()


def call_line(made: Record) -> str:
    """Describe one tool call of a session in one line."""
    result = "ok" if made["ok"] else f"failed: {made['error']}"
    # A CLI does not report the duration of its own tools.
    duration = "the CLI's own" if made["of_cli"] else f"{made['duration_ms']} ms"
    return f"{made['tool']} {made['arguments']} -> {result} ({duration})"


def _names(butler: str | None) -> list[str]:
    settings = Settings.from_environ()
    if butler is not None:
        return [directory.find(settings.home, butler).name]
    return running_butlers(settings)


async def _list(names: list[str], limit: int, running: bool) -> Answers[list[Record]]:
    arguments = {"limit": limit, "running": running}
    return await list_records(names, "sessions_list", arguments, "sessions", timeout_s=CALL_S)


async def _call_on(
    names: list[str], given: str, tool: str, *, running: bool = False
) -> tuple[str, dict[str, Any]]:
    """Call a tool on one session. A full id is found at any age, the start of one among the newest."""
    command = f"butlers sessions list{' --running' if running else ''}"
    session_id = full_id(given)
    if session_id is None:
        answers = await _list(names, LONGEST_LIST, running)
        holders = {one["id"]: one["butler"] for one in newest_first(answers, "started_at")}
        session_id = find_by_prefix(given, list(holders), "sessions", command)
        names = [holders[session_id]]
    what = f"a {'running ' if running else ''}session {session_id}"
    return await call_holder(
        names,
        tool,
        {"id" if tool == "sessions_get" else "session_id": session_id},
        what,
        f"`{command}` lists them",
        timeout_s=CALL_S,
    )


def _row(session: dict[str, Any]) -> list[object]:
    used = [session[kind] for kind in ("input_tokens", "output_tokens")]
    cost, took = session["cost_usd"], session["duration_ms"]
    return [
        session["id"],
        session["butler"],
        session["trigger_source"],
        session["runtime"],
        session["outcome"] or "running",
        sum(used) if None not in used else None,
        _money(cost, session["runtime"]),
        f"{took / 1000:.1f} s" if took is not None else None,
    ]


def _money(cost: Any, runtime: str) -> str | None:
    if runtime == "reflex":
        return None
    return "unknown" if cost is None else f"${float(cost):.4f}"


def _parse_arguments(text: str) -> dict[str, Any]:
    hint = """write one JSON object, e.g. '{"type": "weight"}'"""
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are not JSON: {error}", hint=hint) from None
    if not isinstance(value, dict):
        raise InvalidArguments("the arguments are not a JSON object", hint=hint)
    return value


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
