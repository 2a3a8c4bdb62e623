"""Sessions compared with the bare CLI, tool calls with a bare tool, and the size of the fixed prompt with
that of other assistants.

The model is a fake that answers at once, the CLIs are pinned, and both sides of a ratio are measured
alternately, so that machine load affects both equally.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import uvicorn
from fastmcp import FastMCP

from benchmarks.report import Measured, percentile, report
from benchmarks.rivals.assistants import ASSISTANTS
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.provision import Provisioner
from butlers.db.server import database_server
from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext
from butlers.domain.session import Access, SessionRequest
from butlers.runtimes.base import Grants, Invocation, McpServer, Terms, Workspace
from butlers.runtimes.cli import CliRuntime, make_folders
from butlers.sessions.system_prompt import read_system_prompt
from butlers.wire.client import McpClient
from butlers.wire.telemetry import collecting
from butlers.wire.tokens import FleetKey
from support import npm
from support.clis import CLIS, Cli
from support.collector import Collector
from support.fake_model import FakeModel, Hang, Say, Turn, Use, fake_model
from support.in_process import InProcessButler
from support.tester_folder import write_tester, write_versions
from support.waiting import until

PATH = "/usr/local/bin:/usr/bin:/bin"
WARM_UP, CALLS = 1, 300
AT_ONCE, WAITING = 3, 3  # when all are stopped
CAN_WAIT = ("claude-code", "codex")


def run(options: argparse.Namespace) -> None:
    lines = asyncio.run(_measure(options.sessions))
    note = f"{options.sessions} sessions of each kind, two model turns and one tool call each"
    report("sessions", lines, note)


async def _measure(sessions: int) -> list[Measured]:
    lines: list[Measured] = []
    for cli in CLIS:
        async with _butler(cli, warm=0) as (butler, model):
            cold = await _cold(butler, model, cli, sessions)
            lines.append(cold)
            lines.append(await _stop(butler, model, cli))
            if cli.name == "claude-code":
                lines += await _fixed(model)
                lines += await _calls(butler, "a tool call", at_most=1.25)
                with _exporting(butler.settings):
                    lines += await _calls(butler, "a tool call, its span exported")
        if cli.name in CAN_WAIT:
            async with _butler(cli, warm=1) as (butler, model):
                lines += await _warm(butler, model, cli, sessions, cold.value)
    return lines


# -- sessions


@asynccontextmanager
async def _butler(cli: Cli, *, warm: int) -> AsyncIterator[tuple[Butler, FakeModel]]:
    with tempfile.TemporaryDirectory(prefix="bb-") as name:
        folder = Path(name)
        write_versions(folder / "versions")
        extra = (
            '[butler.env]\noptional = ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL",'
            f' "GOOGLE_GEMINI_BASE_URL"]\n[runtime]\ntype = "{cli.name}"\n'
            f'[butler.runtime]\nmodel = "{cli.model}"\nwarm = {warm}\n'
            f"max_concurrent_sessions = {AT_ONCE}\n"
        )
        write_tester(folder / "tester", "bench", extra=extra)
        async with fake_model() as model:
            environ = {"PATH": f"{npm.installed('clis')}:{PATH}", **cli.environment(model.url)}
            settings = Settings(folder / "home", environ=MappingProxyType(environ))
            async with database_server(settings) as admin:
                key = FleetKey.load(settings.home)
                provisioner = Provisioner(admin, key, isolated=True)
                tester = InProcessButler(
                    folder / "tester", settings.home, key, provisioner, folder / "versions"
                )
                butler = tester.make(settings=settings)
                await butler.start()
                try:
                    yield butler, model
                finally:
                    await tester.close()


def _message() -> SessionRequest:
    request = RequestContext(uuid7(), datetime.now(UTC), "console", "console:owner", "owner")
    return SessionRequest(uuid7(), "do it", "route", request, request.request_id)


async def _session(butler: Butler, model: FakeModel) -> None:
    model.script = [Use("write", text="one"), Say("Done.")]
    result = await butler.spawner.run(_message())
    if not result.ok or result.text != "Done.":
        raise RuntimeError(f"{result.outcome}: {result.error or result.text}")


async def _bare(butler: Butler, model: FakeModel) -> None:
    """Run the same command with the same flags as a plain subprocess."""
    model.script = [Use("write", text="one"), Say("Done.")]
    runtime = butler.spawner.model
    assert isinstance(runtime, CliRuntime)
    session, config = _message(), butler.config
    private = tempfile.mkdtemp(prefix="bs-", dir=butler.home)  # deleted outside the measured time
    with butler.guard.admit(replace(session, request=None)) as token:
        terms = Terms(
            Workspace(config.directory, Path(private)),
            Grants(Access.SEALED),
            model=config.runtime.model,
        )
        make_folders(terms)
        servers = {config.name: McpServer(butler.url, token)}
        env = dict(butler.settings.environ)
        prompt = read_system_prompt(config.directory, config.name)
        command = runtime.command(Invocation(session.prompt, prompt, servers, env, terms))
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            env=dict(command.env),
            cwd=command.cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        output, _ = await process.communicate(command.stdin)
        if b"Done." not in output:
            raise RuntimeError(f"unexpected output of the bare CLI: {output[-500:]!r}")


async def _cold(butler: Butler, model: FakeModel, cli: Cli, sessions: int) -> Measured:
    ours, bare = await _in_turn(
        sessions, lambda: _session(butler, model), lambda: _bare(butler, model)
    )
    p50, baseline = percentile(ours, 50), percentile(bare, 50)
    return Measured(f"{cli.name}, cold (bare CLI), p50", p50, "ms", baseline, at_most=1.15)


async def _warm(
    butler: Butler, model: FakeModel, cli: Cli, sessions: int, cold: float
) -> list[Measured]:
    took: list[float] = []
    bare: list[float] = []
    for number in range(sessions + WARM_UP):
        await until("one to wait", lambda: butler.warm.own.count)
        one = await _timed(lambda: _session(butler, model))
        await until(
            "the next to wait", lambda: butler.warm.own.count
        )  # its start loads the machine
        other = await _timed(lambda: _bare(butler, model))
        if number >= WARM_UP:
            took.append(one)
            bare.append(other)
    p50, title = percentile(took, 50), f"{cli.name}, warm, prompt to result"
    return [
        Measured(f"{title} (cold), p50", p50, "ms", cold, at_most=0.5),
        Measured(f"{title} (bare CLI), p50", p50, "ms", percentile(bare, 50)),
    ]


async def _stop(butler: Butler, model: FakeModel, cli: Cli) -> Measured:
    """Measure stop_all until the last process ended, with some sessions waiting for a slot."""
    model.script = [Hang()]
    model.turns.clear()
    sessions = [
        asyncio.create_task(butler.spawner.run(_message())) for _ in range(AT_ONCE + WAITING)
    ]
    await until("all to hang", lambda: len(model.turns) >= AT_ONCE or None)
    started = time.perf_counter()
    butler.spawner.stop_all()
    await asyncio.gather(*sessions)  # they end after their processes
    took = (time.perf_counter() - started) * 1000
    what = f"{cli.name}, stop-all of {AT_ONCE} running and {WAITING} waiting (a second)"
    return Measured(what, took, "ms", 1000, at_most=1)


async def _in_turn(
    number: int, one: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]]
) -> tuple[list[float], list[float]]:
    ours, bare = [], []
    for count in range(number + WARM_UP):
        first, second = await _timed(one), await _timed(other)
        if count >= WARM_UP:
            ours.append(first)
            bare.append(second)
    return ours, bare


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await work()
    return (time.perf_counter() - started) * 1000


# -- tool calls


@contextmanager
def _exporting(settings: Settings) -> Iterator[None]:
    """Export spans to a collector in the same process."""
    with Collector() as collector, collecting(replace(settings, otlp_endpoint=collector.endpoint)):
        yield


async def _calls(butler: Butler, what: str, at_most: float | None = None) -> list[Measured]:
    """Measure a call with token, guard, transaction, audit and span against a bare tool."""
    with butler.guard.admit(_message()) as token:
        async with (
            _bare_server() as url,
            McpClient("tester", butler.url, lambda: token) as guarded,
            McpClient("bare", url, lambda: "x") as plain,
        ):
            ours, bare = [], []
            for count in range(CALLS):
                first = await _timed(lambda: guarded.call("quick", {"text": "hello"}))
                second = await _timed(lambda: plain.call("quick", {"text": "hello"}))
                if count >= CALLS // 10:
                    ours.append(first)
                    bare.append(second)
    p50 = Measured(
        f"{what}, p50", percentile(ours, 50), "ms", percentile(bare, 50), at_most=at_most
    )
    return [p50, Measured(f"{what}, p99", percentile(ours, 99), "ms", percentile(bare, 99))]


@asynccontextmanager
async def _bare_server() -> AsyncIterator[str]:
    mcp: FastMCP = FastMCP("bare")

    @mcp.tool
    async def quick(text: str = "hello") -> dict[str, str]:
        """Say it back."""
        return {"text": text}

    config = uvicorn.Config(mcp.http_app(path="/mcp"), port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await until("the bare server", lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await serving


# -- fixed cost of a session


async def _fixed(model: FakeModel) -> list[Measured]:
    """Compare the size of a session's first request with other assistants' requests for a greeting."""
    turn = next(turn for turn in model.turns if not turn.results)
    lines = []
    for assistant in ASSISTANTS:
        if (request := await assistant.first_request(model)) is None:
            print(f"skipped: {assistant} cannot be installed here")
            continue
        theirs = f"{assistant}, {len(request.offered)} tools"
        what = f"fixed prompt, {len(turn.offered)} tools ({theirs})"
        lines.append(Measured(what, _tokens(turn), "tokens", _tokens(request)))
    return lines


def _tokens(turn: Turn) -> float:
    return len(json.dumps(turn.body, ensure_ascii=False).encode()) / 4
