"""``butlers list`` and ``butlers status``: which butlers there are, and how they are."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from butlers.cli.output import print_json, print_table
from butlers.config.settings import Settings

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def list_butlers(as_json: AsJson = False) -> None:
    """The butlers of this home: name, port, whether they run, what they are for."""
    from butlers.cli.roster import load_roster
    from butlers.wire import directory

    settings = Settings.from_environ()
    _, configs = load_roster(settings, refresh=False)
    health = asyncio.run(_all_health(settings))
    rows = [
        {
            "name": config.name,
            "port": config.port,
            "state": "running" if health.get(config.name) else "stopped",
            "url": entry.url
            if (entry := directory.entries(settings.home).get(config.name))
            else None,
            "description": config.description,
            "directory": str(config.directory),
        }
        for config in configs
    ]
    if as_json:
        print_json(rows)
    else:
        columns = ("name", "port", "state", "description")
        print_table(columns, [[row[column] for column in columns] for row in rows])


def status(as_json: AsJson = False) -> None:
    """How each butler is. Exits with 1 unless all are healthy."""
    from butlers.cli.roster import load_roster

    settings = Settings.from_environ()
    _, configs = load_roster(settings, refresh=False)
    found = asyncio.run(_all_health(settings))
    states = [found.get(config.name) or _stopped(config.name) for config in configs]
    if as_json:
        print_json(states)
    else:
        print_table(
            ("name", "health", "uptime", "database", "waiting", "dead"), list(map(_row, states))
        )
        for state in states:
            for diagnostic in state.get("diagnostics") or ():
                place = f"{diagnostic['file']}:{diagnostic['line']}:{diagnostic['column']}"
                typer.echo(
                    f"{state['name']}: {place} [{diagnostic['entry']}] {diagnostic['message']}",
                    err=True,
                )
    if any(state["health"] != "healthy" for state in states):
        raise typer.Exit(1)


def _stopped(name: str) -> dict[str, Any]:
    return {"name": name, "health": "stopped", "diagnostics": []}


def _row(state: dict[str, Any]) -> list[object]:
    queues = state.get("queues") or {}
    uptime = state.get("uptime_s")
    return [
        state["name"],
        state["health"],
        f"{uptime:.0f} s" if uptime is not None else None,
        state.get("database"),
        sum(q.get("ready", 0) + q.get("leased", 0) for q in queues.values()),
        sum(q.get("dead", 0) for q in queues.values()),
    ]


async def _all_health(settings: Settings) -> dict[str, dict[str, Any] | None]:
    import httpx

    from butlers.wire import directory

    entries = directory.entries(settings.home)
    # On loopback there is nothing to verify, and reading the certificate store takes longer than asking.
    async with httpx.AsyncClient(timeout=5, trust_env=False, verify=False) as http:

        async def ask(url: str) -> dict[str, Any] | None:
            try:
                answer: dict[str, Any] = (await http.get(url.replace("/mcp", "/health"))).json()
            except (httpx.HTTPError, ValueError):
                return None
            return answer

        answers = await asyncio.gather(*(ask(entry.url) for entry in entries.values()))
    return dict(zip(entries, answers, strict=True))
