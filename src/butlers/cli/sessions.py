"""``butlers sessions`` and ``butlers stop-all``: what butlers think, and how to make them stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from butlers.cli.clients import ask_all, owner_client, running_butlers
from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError, NotFound
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
    found = asyncio.run(_collect(_names(butler), {"limit": limit, "running": running}))
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "butler", "trigger", "runtime", "outcome", "tokens", "cost", "took"),
        [_row(session) for session in found],
    )


@app.command()
def show(session: SessionId, butler: OfButler = None, as_json: AsJson = False) -> None:
    """One session in full: prompt, output, outcome, cost, and each tool call."""
    found = asyncio.run(_show(_names(butler), session))
    if as_json:
        print_json(found)
        return
    calls = found.pop("tool_calls")
    for key, value in found.items():
        if value not in (None, [], ""):
            typer.echo(f"{key + ':':17}{value}")
    for call in calls:
        mark = "ok" if call["ok"] else f"failed: {call['error']}"
        typer.echo(f"  {call['tool']} {call['arguments']} -> {mark} ({call['duration_ms']} ms)")


@app.command()
def stop(session: SessionId, butler: OfButler = None) -> None:
    """End a running session at once."""
    name, session_id = asyncio.run(_find(_names(butler), session, running=True))
    asyncio.run(_call(name, "sessions_stop", {"session_id": session_id}))
    typer.echo(f"stopped {session_id} of {name}")


def stop_all(as_json: AsJson = False) -> None:
    """End every running session of every butler at once. Asks no model."""
    stopped, failed = asyncio.run(_stop_all(_names(None)))
    if as_json:
        print_json({"stopped": stopped, "failed": failed})
    else:
        for name, sessions in stopped.items():
            typer.echo(f"{name}: {len(sessions)} stopped")
        for name, why in failed.items():
            typer.echo(f"{name}: {why}", err=True)
    if failed:
        raise typer.Exit(1)


def _names(butler: str | None) -> list[str]:
    settings = Settings.from_environ()
    if butler is not None:
        return [directory.find(settings.home, butler).name]
    return running_butlers(settings)


async def _call(butler: str, tool: str, arguments: dict[str, Any]) -> Any:
    async with owner_client(Settings.from_environ(), butler) as client:
        return await client.call(tool, arguments, timeout_s=STOP_S)


async def _collect(names: Iterable[str], arguments: dict[str, Any]) -> list[dict[str, Any]]:
    async def of(name: str) -> list[dict[str, Any]]:
        answer = await _call(name, "sessions_list", arguments)
        return [{"butler": name, **session} for session in answer["sessions"]]

    found = await ask_all(list(names), of)
    every = [session for sessions in found for session in sessions]
    return sorted(every, key=lambda session: str(session["started_at"]), reverse=True)


async def _find(names: list[str], beginning: str, *, running: bool = False) -> tuple[str, str]:
    found = await _collect(names, {"limit": 500, "running": running})
    matches = [
        (session["butler"], session["id"])
        for session in found
        if session["id"].startswith(beginning)
    ]
    if len(matches) == 1:
        return matches[0]
    what = "runs" if running else "is known"
    raise NotFound(
        f"no session that begins with {beginning!r} {what}"
        if not matches
        else f"{len(matches)} sessions begin with {beginning!r}",
        hint="`butlers sessions list` shows them",
    )


async def _show(names: list[str], beginning: str) -> dict[str, Any]:
    name, session_id = await _find(names, beginning)
    found: dict[str, Any] = await _call(name, "sessions_get", {"session_id": session_id})
    return {"butler": name, **found}


async def _stop_all(names: list[str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """A butler that does not answer is said, and does not keep the others from being stopped."""
    answers = await asyncio.gather(
        *(_call(name, "sessions_stop", {}) for name in names), return_exceptions=True
    )
    stopped: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, ButlersError):
            failed[name] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            stopped[name] = answer["stopped"]
    return stopped, failed


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
