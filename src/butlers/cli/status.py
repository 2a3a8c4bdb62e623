"""``butlers list``, ``status`` and ``doctor``: butlers, their health, and the machine they run on."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from butlers.cli.fleet import load_roster, owner_client, summarize_roster
from butlers.cli.output import AsJson, print_json, print_line, print_rows, print_table
from butlers.cli.secrets import with_vault
from butlers.config.settings import Settings
from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import ButlersError
from butlers.wire import directory
from butlers.wire.http import HttpClient, HttpFailed

if TYPE_CHECKING:
    from butlers.runtimes.cli import CliRuntime

TEST_PROMPT = "Call the tool `status` once, then answer with the one word OK."
TEST_PROMPT_S = 600.0
LEAST_FREE_MB = 500
HEALTH, HEALTH_S = "/health", 5.0

Check = dict[str, Any]


def list_butlers(as_json: AsJson = False) -> None:
    """List the butlers of this home: name, port, state and purpose."""
    settings = Settings.from_environ()
    butlers = summarize_roster(settings)
    health = asyncio.run(_all_health(settings))
    running = directory.entries(settings.home)
    rows = [
        {
            "name": butler.name,
            "port": butler.port,
            "state": "running" if health.get(butler.name) else "stopped",
            "url": entry.url if (entry := running.get(butler.name)) else None,
            "description": butler.description,
            "directory": butler.directory,
        }
        for butler in butlers
    ]
    print_rows(rows, ("name", "port", "state", "description"), as_json)


def status(as_json: AsJson = False) -> None:
    """Show the health of each butler. Exits with 1 unless all are healthy."""
    settings = Settings.from_environ()
    butlers = summarize_roster(settings)
    found = asyncio.run(_all_health(settings))
    states = [found.get(butler.name) or _stopped(butler.name) for butler in butlers]
    if as_json:
        print_json(states)
    else:
        columns = ("name", "health", "uptime", "database", "waiting", "dead", "questions")
        print_table(columns, [_status_row(state) for state in states])
        for state in states:
            for diagnostic in state.get("diagnostics") or ():
                print_line(f"{state['name']}: {_problem(diagnostic)}", err=True)
        for line in (
            *_warning_lines(states),
            *_runtime_lines(states),
            *_provider_lines(states),
            *_sandbox_lines(states),
        ):
            print_line(line, err=True)
    if any(state["health"] != "healthy" for state in states):
        raise typer.Exit(1)


def doctor(
    prove: Annotated[
        bool,
        typer.Option(help="Test a language model with one real tool call, which costs a little."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check the machine, the installed LLM CLIs and the fleet. Exits with 1 if a check fails."""
    settings = Settings.from_environ()
    running = sorted(directory.entries(settings.home))
    # Without a running fleet, reading the stored credentials would start a database server.
    stored = _stored_credentials() if running else set()
    checks = asyncio.run(_check_all(settings, running, stored, prove=prove))
    if as_json:
        print_json(checks)
    else:
        for check in checks:
            print_line(f"{check['state']:10}{check['name']:14}{check['detail']}")
            if check.get("hint"):
                print_line(f"{'':24}hint: {check['hint']}")
    if any(check["state"] == "broken" for check in checks):
        raise typer.Exit(1)


def _problem(diagnostic: dict[str, Any]) -> Diagnostic:
    return Diagnostic(**diagnostic | {"file": Path(diagnostic["file"])})


def _stopped(name: str) -> dict[str, Any]:
    return {"name": name, "health": "stopped", "diagnostics": []}


def _warning_lines(states: list[dict[str, Any]]) -> list[str]:
    """Return the warnings of all butlers, each once: they share a disk and mostly a database."""
    return sorted({warning for state in states for warning in state.get("warnings") or ()})


def _provider_lines(states: list[dict[str, Any]]) -> list[str]:
    """Return one line for each model provider that fails or asked for a pause, as a broker sees it."""
    lines = {
        f"{name}: {circuit['state']}, {circuit['reason']}, next request in {circuit['paused_s']:g} s"
        for state in states
        for name, circuit in (state.get("providers") or {}).items()
        if circuit["state"] != "ok"
    }
    return sorted(lines)


def _runtime_lines(states: list[dict[str, Any]]) -> list[str]:
    """Return what to know of the CLIs, each once: most butlers use the same."""
    return sorted({line for state in states for line in state.get("runtime_warnings") or ()})


def _sandbox_lines(states: list[dict[str, Any]]) -> list[str]:
    missing = any(state.get("sandbox") == "none" for state in states)
    return ["no sandbox: `butlers doctor` says why, and what that means"] if missing else []


def _status_row(state: dict[str, Any]) -> list[object]:
    queues = state.get("queues") or {}
    uptime = state.get("uptime_s")
    return [
        state["name"],
        state["health"],
        f"{uptime:.0f} s" if uptime is not None else None,
        state.get("database"),
        sum(q.get("ready", 0) + q.get("leased", 0) for q in queues.values()),
        sum(q.get("dead", 0) for q in queues.values()),
        state.get("questions"),
    ]


async def _all_health(settings: Settings) -> dict[str, dict[str, Any] | None]:
    entries = directory.entries(settings.home)
    answers = await asyncio.gather(*(_health(entry.url) for entry in entries.values()))
    return dict(zip(entries, answers, strict=True))


async def _health(url: str) -> dict[str, Any] | None:
    """Return the state that a butler reports; None if it does not answer."""
    http = HttpClient(url)
    try:
        async with asyncio.timeout(HEALTH_S):
            answer: dict[str, Any] = (await http.get(HEALTH)).json()
    except (HttpFailed, OSError, ValueError):
        return None
    finally:
        await http.close()
    return answer


def _stored_credentials() -> set[str]:
    try:
        return {entry.name for entry in with_vault(lambda vault: vault.entries())}
    except ButlersError:  # the checks of the butlers report a database failure
        return set()


async def _check_all(
    settings: Settings, running: list[str], stored: set[str], *, prove: bool
) -> list[Check]:
    from butlers.runtimes.registry import cli_runtimes

    checks = [
        _check("python", "ok", sys.version.split()[0]),
        _check_home(settings),
        _check_sandbox(settings),
    ]
    checks += [await _check_runtime(cli, settings, stored) for cli in cli_runtimes().values()]
    checks.append(_check_fleet(running))
    checks += _check_channels(settings, stored if running else None)
    if running:
        checks += await asyncio.gather(*(_check_butler(settings, name) for name in running))
    if prove:
        checks.append(await _check_model(settings, running))
    return checks


def _check(name: str, state: str, detail: str, hint: str | None = None, **more: Any) -> Check:
    return {"name": name, "state": state, "detail": detail, "hint": hint, **more}


def _check_home(settings: Settings) -> Check:
    if not settings.home.exists():
        return _check("home", "absent", str(settings.home), "`make up` creates it")
    free = shutil.disk_usage(settings.home).free // 2**20
    if free < LEAST_FREE_MB:
        return _check("home", "broken", f"{settings.home}: {free} MB free", "free some disk space")
    return _check("home", "ok", f"{settings.home}, {free:,} MB free")


def _check_sandbox(settings: Settings) -> Check:
    from butlers.config.fleet import sandbox_required
    from butlers.process.sandbox import sandbox_problem

    problem = sandbox_problem()
    if problem is None:
        return _check("sandbox", "ok", "scripts and CLIs run in namespaces of their own")
    required = sandbox_required(settings)
    scripts = "are refused" if required else "run with all rights of your account"
    detail = f"none: {problem}. Scripts from elsewhere {scripts}; CLIs keep to their own permissions only"
    hint = "allow user namespaces: sysctl user.max_user_namespaces, or the container's settings"
    return _check("sandbox", "broken" if required else "degraded", detail, hint)


def _check_channels(settings: Settings, stored: set[str] | None) -> list[Check]:
    """Return the checks of every channel, with the configuration of the Messenger and Switchboard."""
    from butlers.channels.registry import channel_checks
    from butlers.config.overrides import working_copy

    configs = {}
    if working_copy(settings.home).is_dir():  # before the first start there is no configuration
        configs = {config.name: config for config in load_roster(settings, refresh=False)[1]}
    found = channel_checks(
        settings.home,
        stored,
        messenger=configs.get("messenger"),
        switchboard=configs.get("switchboard"),
    )
    return [_check(check.name, check.state, check.detail, check.hint) for check in found]


async def _check_runtime(cli: type[CliRuntime], settings: Settings, stored: set[str]) -> Check:
    from butlers.runtimes.cli import installed_version

    name, hint = cli.name, cli.install_hint()
    executable = cli.find(settings.environ.get("PATH", ""))
    if executable is None:
        return _check(name, "absent", "not installed", hint, installed=False)
    environ = {"PATH": settings.environ.get("PATH", ""), "HOME": "/nonexistent"}
    version = await installed_version(executable, environ)
    if version is None:
        return _check(name, "broken", f"{executable} does not start", hint, installed=True)
    keys = cli.credentials
    kept = next((key for key in keys if key in stored), None)
    credential = kept or next((key for key in keys if settings.environ.get(key)), None)
    facts: Check = {"installed": True, "version": version, "credential": credential}
    place = "stored" if kept else "in the environment"
    where = f"credential {credential} {place}" if credential else "no credential"
    to_set = None if credential else f"`butlers secrets set {shlex.quote(keys[0])}`"
    if version != cli.pinned:
        hint = hint if to_set is None else f"{to_set}; {hint}"
        detail = f"version {version}, tested with {cli.pinned}; {where}"
        return _check(name, "untested", detail, hint, **facts)
    return _check(name, "ok", f"version {version}, {where}", to_set, **facts)


def _check_fleet(running: list[str]) -> Check:
    if not running:
        return _check("fleet", "absent", "no butler is running", "`make up` starts the fleet")
    return _check("fleet", "ok", ", ".join(running))


async def _check_butler(settings: Settings, butler: str) -> Check:
    try:
        async with owner_client(settings, butler) as client:
            status = await client.call("status", timeout_s=5)
    except ButlersError as error:
        return _check(butler, "broken", str(error), error.hint)
    state = "ok" if status["health"] == "healthy" else "broken"
    facts = {key: status[key] for key in ("health", "runtime", "uptime_s", "providers")}
    lines = (*_warning_lines([status]), *_provider_lines([status]))
    troubles = "".join(f"; {line}" for line in lines)
    detail = f"{status['health']}, runtime {status['runtime']}{troubles}"
    return _check(butler, state, detail, **facts)


async def _check_model(settings: Settings, running: list[str]) -> Check:
    """Prove every butler that has a model, and sum the proofs up."""
    if not running:
        hint = "`butlers up`, then `butlers doctor` again"
        return _check("proof", "absent", "not tested: no butler is running", hint)
    found = await asyncio.gather(*(_prove(settings, butler) for butler in running))
    proofs = [proof for proof in found if proof is not None]
    if not proofs:
        return _check("proof", "absent", "no language model is configured; only reflexes answer")
    broken = next((proof for proof in proofs if proof["state"] != "ok"), None)
    detail = "; ".join(proof["detail"] for proof in proofs)
    if broken is not None:
        return _check("proof", "broken", detail, broken["hint"])
    return _check("proof", "ok", detail)


async def _prove(settings: Settings, butler: str) -> Check | None:
    """Run a session of a butler that has a model, and look for its tool call at our own server."""
    async with owner_client(settings, butler) as client:
        try:
            if (await client.call("status", timeout_s=5))["runtime"] == "reflex":
                return None
            ended = await client.call("trigger", {"prompt": TEST_PROMPT}, timeout_s=TEST_PROMPT_S)
            seen = await client.call("sessions_get", {"id": ended["session_id"]})
        except ButlersError as error:
            return _check(butler, "broken", f"{butler}: {error}", error.hint)
    called = [call["tool"] for call in seen["tool_calls"] if call["ok"] and not call["of_cli"]]
    if ended["success"] and "status" in called:
        took = f"{seen['duration_ms'] / 1000:.1f} s"
        return _check(butler, "ok", f"{butler} on {seen['runtime']} called status, {took}")
    why = ended["error"] or "the session made no call"
    hint = f"`butlers sessions show {shlex.quote(str(ended['session_id']))}`"
    return _check(butler, "broken", f"{butler} on {seen['runtime']}: {why}", hint)
