"""``butlers doctor``: what this machine has to think with, and whether it works."""

from __future__ import annotations

import asyncio
import shutil
import sys
from typing import Annotated, Any

import typer

from butlers.cli.clients import owner_client
from butlers.cli.output import print_json
from butlers.cli.secrets import with_vault
from butlers.config.settings import Settings
from butlers.domain.errors import ButlersError
from butlers.runtimes.installed import PINNED, find_cli, install_hint
from butlers.runtimes.needs import NEEDS
from butlers.wire import directory

PROOF = "Call the tool `status` once, then answer with the one word OK."
PROOF_S = 600.0

Check = dict[str, Any]


def doctor(
    prove: Annotated[
        bool,
        typer.Option(help="Prove a model's runtime by a real tool call, which costs a little."),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check the machine, the runtimes and the fleet. Exits with 1 when something is broken."""
    settings = Settings.from_environ()
    running = sorted(directory.entries(settings.home))
    # The store is asked while the fleet runs; else its database would have to be started for it.
    stored = _stored() if running else set()
    checks = asyncio.run(_examine(settings, running, stored, prove=prove))
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            typer.echo(f"{check['state']:10}{check['name']:14}{check['detail']}")
            if check.get("hint"):
                typer.echo(f"{'':24}hint: {check['hint']}")
    if any(check["state"] == "broken" for check in checks):
        raise typer.Exit(1)


def _stored() -> set[str]:
    try:
        return {entry.name for entry in with_vault(lambda vault: vault.entries())}
    except ButlersError:  # what is wrong with the database is said by the butlers' own checks
        return set()


async def _examine(
    settings: Settings, running: list[str], stored: set[str], *, prove: bool
) -> list[Check]:
    checks = [_python(), _home(settings)]
    checks += [await _runtime(name, settings, stored) for name in NEEDS]
    checks.append(_fleet(running))
    if running:
        checks += await asyncio.gather(*(_thinks(settings, name) for name in running))
    if prove:
        checks.append(await _proof(settings, running))
    return checks


def _check(name: str, state: str, detail: str, hint: str | None = None, **more: Any) -> Check:
    return {"name": name, "state": state, "detail": detail, "hint": hint, **more}


def _python() -> Check:
    return _check("python", "ok", sys.version.split()[0])


def _home(settings: Settings) -> Check:
    if not settings.home.exists():
        return _check("home", "absent", str(settings.home), "`make up` makes it")
    free = shutil.disk_usage(settings.home).free // 2**20
    if free < 500:
        return _check("home", "broken", f"{settings.home}: {free} MB free", "make room")
    return _check("home", "ok", f"{settings.home}, {free:,} MB free")


async def _runtime(name: str, settings: Settings, stored: set[str]) -> Check:
    cli = find_cli(name, settings.environ.get("PATH", ""))
    if cli is None:
        return _check(name, "absent", "not installed", install_hint(name), installed=False)
    version = await cli.version({"PATH": settings.environ.get("PATH", ""), "HOME": "/nonexistent"})
    if version is None:
        hint = install_hint(name)
        return _check(name, "broken", f"{cli.executable} does not start", hint, installed=True)
    keys = NEEDS[name].credentials
    kept = next((key for key in keys if key in stored), None)
    credential = kept or next((key for key in keys if settings.environ.get(key)), None)
    facts: Check = {"installed": True, "version": version, "credential": credential}
    place = "kept" if kept else "in the environment"
    where = f"credential {credential} {place}" if credential else "no credential"
    if version != PINNED[name]:
        detail = f"version {version}, tested with {PINNED[name]}; {where}"
        return _check(name, "untested", detail, install_hint(name), **facts)
    return _check(name, "ok", f"version {version}, {where}", **facts)


def _fleet(running: list[str]) -> Check:
    if not running:
        return _check("fleet", "absent", "no butler runs here", "`make up` starts the fleet")
    return _check("fleet", "ok", ", ".join(running))


async def _thinks(settings: Settings, butler: str) -> Check:
    try:
        async with owner_client(settings, butler) as client:
            status = await client.call("status", timeout_s=5)
    except ButlersError as error:
        return _check(butler, "broken", str(error), error.hint)
    state = "ok" if status["health"] == "healthy" else "broken"
    facts = {key: status[key] for key in ("health", "runtime", "uptime_s")}
    return _check(butler, state, f"{status['health']}, thinks with {status['runtime']}", **facts)


async def _proof(settings: Settings, running: list[str]) -> Check:
    """A session of one butler that has a model calls a tool, and the call is seen at our own server."""
    if not running:
        hint = "`butlers up`, then `butlers doctor` again"
        return _check("proof", "absent", "not proven: no butler is running", hint)
    for butler in running:
        async with owner_client(settings, butler) as client:
            try:
                if (await client.call("status", timeout_s=5))["runtime"] == "reflex":
                    continue
                ended = await client.call("trigger", {"prompt": PROOF}, timeout_s=PROOF_S)
                seen = await client.call("sessions_get", {"session_id": ended["session_id"]})
            except ButlersError as error:
                return _check("proof", "broken", f"{butler}: {error}", error.hint)
        called = [call["tool"] for call in seen["tool_calls"] if call["ok"] and not call["of_cli"]]
        if ended["success"] and "status" in called:
            took = f"{seen['duration_ms'] / 1000:.1f} s"
            return _check("proof", "ok", f"{butler} on {seen['runtime']} called status, {took}")
        why = ended["error"] or "the session made no call"
        hint = f"`butlers sessions show {ended['session_id']}`"
        return _check("proof", "broken", f"{butler} on {seen['runtime']}: {why}", hint)
    return _check("proof", "absent", "no butler has a model; reflexes answer what they know")
