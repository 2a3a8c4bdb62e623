"""The walk of one message: ARCHITECTURE.md lists the files it goes through, and a trace of real calls agrees.

``PYTHONPATH=src:tests python -m integration.test_walk`` prints the current walk.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import asyncpg

import butlers
from butlers.channels.console.connector import ConsoleConnector, Reply
from butlers.cli.fleet import load_roster
from butlers.cli.main import main
from butlers.config.settings import Settings
from butlers.daemon.fleet import Fleet
from butlers.db.embedded import EmbeddedPostgres
from butlers.domain.trace import TraceContext, current_trace, in_trace
from support.fleet import ROOT, Slot, butlers_environment

MESSAGE = "weight 80.4 kg"
REPLY = "Logged: weight 80.4 kg."
LONGEST_WALK = 35
REGISTERED = "SELECT EXISTS (SELECT FROM switchboard.butler_registry WHERE name = 'health')"
DELIVERED = "SELECT EXISTS (SELECT FROM messenger.deliveries WHERE state = 'delivered')"
PACKAGE = Path(butlers.__file__).parent

# Files that serve the files of the walk. ARCHITECTURE.md names them too.
SUPPORT = (
    # vocabulary and settings
    "domain/",
    "config/",
    # calls between processes, connection pool, child processes
    "wire/",
    "db/",
    "process/",
    # around every tool call: HTTP, MCP, tokens, enabled modules, audit
    "daemon/",
    "modules/",
    "sessions/guard.py",
    "tools/callers.py",
    "tools/context.py",
    "tools/call_results.py",
    "tools/declaration.py",
    "tools/pipeline_call.py",
    "tools/records.py",
    "tools/result_pages.py",
    # around every queue item and every session
    "queue/listener.py",
    "queue/pause.py",
    "runtimes/cli.py",
    "sessions/concurrency.py",
    "sessions/judgment.py",
    "sessions/notes.py",
    "sessions/recovery.py",
    "sessions/workspace.py",
    # finding the file of a command
    "cli/lazy.py",
    # following the message to its end
    "cli/waiting.py",
    "queue/queries.py",
    "tools/requests.py",
    # messages that the Switchboard answers by itself, which this one is not
    "switchboard/approval_answers.py",
    "switchboard/classification.py",
    "switchboard/guidance.py",
    "switchboard/own_answers.py",
    "switchboard/undo.py",
    # units of measurement
    "roster/health/tools/units.py",
    # wiring of roles and channels
    "tools/role.py",
    "switchboard/role.py",
    "messenger/role.py",
    "scheduling/role.py",
    "channels/base.py",
    "channels/registry.py",
    # patterns and values of reflexes, behind runtimes/reflex.py
    "skills/",
)


class Walk:
    """First visits of files of our package on behalf of one trace, in order, in every thread."""

    def __init__(self, trace: TraceContext, roster: Path) -> None:
        self._trace_id = trace.trace_id
        self._places = ((f"{PACKAGE}/", ""), (f"{roster}/", "roster/"))
        self._seen: set[str] = set()
        self.visited: list[str] = []

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _record(self, frame: FrameType, event: str, _argument: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or path in self._seen or frame.f_code.co_name == "<module>":
            return
        current = current_trace()
        if current is None or current.trace_id != self._trace_id:
            return
        self._seen.add(path)
        for at, label in self._places:
            if path.startswith(at):
                self.visited.append(label + path.removeprefix(at))


def is_station(file: str) -> bool:
    return not file.startswith(SUPPORT)


async def trace_walk(home: Path, offset: int) -> list[str]:
    """Send the message to a fleet in this process, and return the files that it visits."""
    environment = butlers_environment(home, offset)
    settings = Settings.from_environ(environment)
    fleet_config, configs = load_roster(settings)
    fleet = Fleet(configs, settings, fleet_config)
    ready = asyncio.Event()
    serving = asyncio.create_task(fleet.run(lambda _butlers: ready.set()))
    try:
        await asyncio.wait(
            {asyncio.create_task(ready.wait()), serving}, return_when="FIRST_COMPLETED"
        )
        assert ready.is_set(), serving.exception()
        await _wait_until(
            home, "SELECT EXISTS (SELECT FROM switchboard.butler_registry WHERE name = 'health')"
        )
        trace = TraceContext.new()
        walk = Walk(trace, home / "roster")
        with (
            _reply_fetched_after_delivery(home),
            walk.recorded(),
            in_trace(trace),
            ThreadPoolExecutor(1) as terminal,  # a new thread, so that its calls are recorded
        ):
            context = contextvars.copy_context()
            sending = terminal.submit(context.run, _send, environment)
            printed = await asyncio.wrap_future(sending)
        assert REPLY in printed.splitlines(), printed  # log lines may stand beside it
        return walk.visited
    finally:
        fleet.stop()
        await serving


def _send(environment: dict[str, str]) -> str:
    output = io.StringIO()
    with (
        patch.dict("os.environ", environment),
        patch.object(sys, "argv", ["butlers", "send", MESSAGE, "--wait"]),
        contextlib.redirect_stdout(output),
    ):
        assert main() == 0
    return output.getvalue()


@contextlib.contextmanager
def _reply_fetched_after_delivery(home: Path) -> Iterator[None]:
    """Let the console ask for the reply when it is there, so that the order of visits does not vary."""
    receive = ConsoleConnector.receive

    async def receive_later(self: ConsoleConnector, *arguments: Any, **named: Any) -> list[Reply]:
        await _wait_until(home, DELIVERED)
        return await receive(self, *arguments, **named)

    with patch.object(ConsoleConnector, "receive", receive_later):
        yield


async def _wait_until(home: Path, condition: str) -> None:
    with in_trace(None):  # this look at the tables is no part of the walk
        connection = await asyncpg.connect(EmbeddedPostgres(home).dsn("butlers"))
        try:
            while not await connection.fetchval(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        finally:
            await connection.close()


@contextlib.contextmanager
def _home(template: Path) -> Iterator[tuple[Path, int]]:
    home, slot = Path(tempfile.mkdtemp(prefix="bh-")), Slot()
    try:
        shutil.copytree(template, home, dirs_exist_ok=True, symlinks=True)
        yield home, slot.offset
    finally:
        slot.release()
        shutil.rmtree(home, ignore_errors=True)


def documented_walk() -> list[str]:
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## The walk, file by file")[1]
    return re.findall(r"^\d+\. `([^`]+)`", section.split("\n## ")[0], re.MULTILINE)


async def test_the_documented_walk_is_the_walk_of_a_message(template_home: Path) -> None:
    with _home(template_home) as (home, offset):
        visited = await trace_walk(home, offset)
    assert documented_walk() == [file for file in visited if is_station(file)]


def test_files_that_do_not_count_are_documented() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## The walk, file by file")[1]
    named = set(re.findall(r"`([\w./]+)`", text.split("\n## ")[0]))
    assert set(SUPPORT) <= named


def test_the_documented_walk_is_short_and_visits_each_file_once() -> None:
    walk = documented_walk()
    assert 0 < len(walk) <= LONGEST_WALK
    assert len(set(walk)) == len(walk)


if __name__ == "__main__":
    with _home(Path(tempfile.mkdtemp(prefix="bh-"))) as (home, offset):
        for file in asyncio.run(trace_walk(home, offset)):
            print(file if is_station(file) else f"    ({file})")
