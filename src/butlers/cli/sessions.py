"""``butlers sessions`` and ``butlers stop-all``: what butlers think, and how to make them stop."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from butlers.cli.clients import find_by_beginning, owner_client, running_butlers
from butlers.cli.everyone import Answers, ask_all, ask_who_knows, whole_id
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings
from butlers.wire import directory

app = typer.Typer(help="Sessions: what each was asked, did and cost.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
OfButler = Annotated[str | None, typer.Option("--butler", help="Only this butler's.")]
SessionId = Annotated[str, typer.Argument(metavar="ID", help="A session's id, or its beginning.")]
STOP_S = 10.0


@app.command(name="list")
def list_sessions(
    butler: OfButler = None,
    running: Annotated[bool, typer.Option("--running", help="Only those that run now.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many of each butler.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Recent sessions of all butlers, newest first."""
    answers = asyncio.run(_ask(_names(butler), {"limit": limit, "running": running}))
    found = _newest_first(answers)
    if as_json:
        print_json(found)
    else:
        print_table(
            ("id", "butler", "trigger", "runtime", "outcome", "tokens", "cost", "took"),
            [_row(session) for session in found],
        )
    answers.tell_failures()


@app.command()
def show(session: SessionId, butler: OfButler = None, as_json: AsJson = False) -> None:
    """One session in full: prompt, output, outcome, cost, and each tool call."""
    name, known = asyncio.run(_act(_names(butler), session, "sessions_get"))
    found = {"butler": name, **known}
    if as_json:
        print_json(found)
        return
    calls = found.pop("tool_calls")
    for key, value in found.items():
        if value not in (None, [], ""):
            typer.echo(f"{key + ':':17}{value}")
    for call in calls:
        typer.echo(f"  {call_line(call)}")


@app.command()
def stop(session: SessionId, butler: OfButler = None) -> None:
    """End a running session at once."""
    name, done = asyncio.run(_act(_names(butler), session, "sessions_stop", running=True))
    (stopped,) = done["stopped"]
    typer.echo(f"stopped {stopped} of {name}")


def stop_all(as_json: AsJson = False) -> None:
    """End every running session of every butler at once. Asks no model."""
    answers = asyncio.run(ask_all(_names(None), lambda name: _call(name, "sessions_stop", {})))
    stopped = {name: answer["stopped"] for name, answer in answers.found.items()}
    if as_json:
        failed = {name: str(error) for name, error in answers.failed.items()}
        print_json({"stopped": stopped, "failed": failed})
    else:
        for name, sessions in stopped.items():
            typer.echo(f"{name}: {len(sessions)} stopped")
    answers.tell_failures()


def call_line(call: dict[str, Any]) -> str:
    mark = "ok" if call["ok"] else f"failed: {call['error']}"
    # How long its own took the CLI does not tell.
    beside = "the CLI's own" if call["of_cli"] else f"{call['duration_ms']} ms"
    return f"{call['tool']} {call['arguments']} -> {mark} ({beside})"


def _names(butler: str | None) -> list[str]:
    settings = Settings.from_environ()
    if butler is not None:
        return [directory.find(settings.home, butler).name]
    return running_butlers(settings)


async def _call(butler: str, tool: str, arguments: dict[str, Any]) -> Any:
    async with owner_client(Settings.from_environ(), butler) as client:
        return await client.call(tool, arguments, timeout_s=STOP_S)


async def _ask(names: list[str], arguments: dict[str, Any]) -> Answers[list[dict[str, Any]]]:
    async def of(name: str) -> list[dict[str, Any]]:
        answer = await _call(name, "sessions_list", arguments)
        return [{"butler": name, **session} for session in answer["sessions"]]

    return await ask_all(names, of)


def _newest_first(answers: Answers[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    every = [session for sessions in answers.found.values() for session in sessions]
    return sorted(every, key=lambda session: str(session["started_at"]), reverse=True)


async def _act(
    names: list[str], named: str, tool: str, *, running: bool = False
) -> tuple[str, dict[str, Any]]:
    """By its whole id it is found however old it is; by a beginning among the newest."""
    shows = f"butlers sessions list{' --running' if running else ''}"
    session_id = whole_id(named)
    if session_id is None:
        answers = await _ask(names, {"limit": 500, "running": running})
        owners = {one["id"]: one["butler"] for one in _newest_first(answers)}
        session_id = find_by_beginning(named, list(owners), "sessions", shows)
        names = [owners[session_id]]
    what = f"a {'running ' if running else ''}session {session_id}"
    return await ask_who_knows(
        names,
        lambda name: _call(name, tool, {"session_id": session_id}),
        what,
        f"`{shows}` shows them",
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
