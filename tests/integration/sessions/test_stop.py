"""Stopping sessions: those that run, with every process of theirs, and those that wait for their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from butlers.domain.clock import uuid7
from butlers.domain.session import Access, Outcome, SessionRequest, SessionResult
from butlers.process.runner import Event, ProcessCommand, ProcessEnd
from butlers.runtimes.base import Invocation
from butlers.runtimes.cli import CliRuntime, Transcript, own_environment
from butlers.runtimes.failures import cut_short, of_exit
from support.in_process import InProcessButler, MakeButler
from support.waiting import until

# It does not listen when it is asked to end, and has a child in a session of its own that does not either.
STUBBORN = (
    "trap '' TERM; echo '{\"begun\": 1}'; echo $$ > \"$TMPDIR/first\";"
    ' setsid sh -c \'trap "" TERM; echo $$ > "$TMPDIR/second"; sleep 3600\' & wait; sleep 3600'
)


class Silent:
    def read(self, event: Event) -> bool:
        return False

    def result(self, ended: ProcessEnd) -> SessionResult:
        failure = cut_short("It", ended) or of_exit("It", ended)
        return failure.apply_to(SessionResult(Outcome.CRASHED, "", exit=ended.exit))


class Stubborn(CliRuntime):
    name = "claude-code"
    settings = ("ANTHROPIC_BASE_URL",)
    levels = frozenset(Access)
    added = dict.fromkeys(Access, 0)

    def command(self, call: Invocation) -> ProcessCommand:
        terms = call.terms
        return ProcessCommand(
            ("/bin/sh", "-c", STUBBORN), own_environment(call.env, terms), terms.workspace.cwd
        )

    def transcript(self, call: Invocation) -> Transcript:
        return Silent()


def processes(tester: InProcessButler) -> set[int]:
    """Return the processes in a session's folder, whoever their parent is."""
    mark = str(tester.home / "sessions")
    found = set()
    for one in psutil.process_iter():
        try:
            if one.environ().get("HOME", "").startswith(mark):
                found.add(one.pid)
        except psutil.Error:
            continue
    return found


def asked() -> SessionRequest:
    return SessionRequest(uuid7(), "think", "trigger")


async def begin(
    tester: InProcessButler, *, running: int, waiting: int
) -> dict[UUID, asyncio.Task[Any]]:
    spawner = (await tester.start()).spawner
    spawner.model = Stubborn(Path("/bin/sh"))
    sessions = [asked() for _ in range(running + waiting)]
    tasks = {one.session_id: asyncio.create_task(spawner.run(one)) for one in sessions}
    folders = tester.home / "sessions"

    def begun() -> bool:
        noted = [*folders.rglob("tmp/first"), *folders.rglob("tmp/second")]
        return len(noted) == 2 * running and spawner._queued == waiting

    await until("some to run and some to wait", begun)
    return tasks


async def test_stop_all_ends_those_that_run_and_those_that_wait(make_butler: MakeButler) -> None:
    tester = make_butler(extra="[butler.runtime]\nmax_concurrent_sessions = 3\n")
    sessions = await begin(tester, running=3, waiting=4)
    assert len(processes(tester)) >= 6
    async with tester.owner() as owner:
        answer = await owner.call("sessions_stop")
    assert {UUID(stopped) for stopped in answer["stopped"]} == set(sessions)
    results = await asyncio.gather(*sessions.values())
    assert {result.outcome for result in results} == {Outcome.CANCELLED}
    assert processes(tester) == set()
    rows = await tester.rows("SELECT * FROM sessions")
    assert {row["id"] for row in rows} == set(sessions), "also those that never began are on record"
    assert {(row["outcome"], row["success"]) for row in rows} == {("cancelled", False)}
    assert all(row["completed_at"] for row in rows)
    assert sorted(row["end_reason"] or "" for row in rows) == [""] * 4 + ["stopped"] * 3
    assert tester.butler.spawner._queued == 0


async def test_sessions_after_stop_all_run(make_butler: MakeButler) -> None:
    """No slot is lost, neither of those that ran nor of those that waited."""
    tester = make_butler(extra="[butler.runtime]\nmax_concurrent_sessions = 1\n")
    sessions = await begin(tester, running=1, waiting=2)
    tester.butler.spawner.stop_all()
    await asyncio.gather(*sessions.values())
    later = asked()
    task = asyncio.create_task(tester.butler.spawner.run(later))
    await until("it to run", lambda: processes(tester))
    assert tester.butler.spawner.stop(later.session_id)
    assert (await task).outcome is Outcome.CANCELLED


async def test_end_of_a_stopped_session_is_recorded_and_shown(make_butler: MakeButler) -> None:
    tester = make_butler()
    ((session_id, task),) = (await begin(tester, running=1, waiting=0)).items()
    assert tester.butler.spawner.stop(session_id)
    result = await task
    assert result.exit is not None
    async with tester.owner() as owner:
        shown = await owner.call("sessions_get", {"id": str(session_id)})
    assert shown["end_reason"] == "stopped"
    assert shown["exit_code"] == result.exit.code
    assert shown["exit_code"] < 0, "it had to be made to"
    assert shown["exit_seconds"] > 0
    assert shown["error"] == shown["output"] == result.text == "The session was stopped."


async def test_waiting_session_is_stopped_without_the_others(make_butler: MakeButler) -> None:
    tester = make_butler(extra="[butler.runtime]\nmax_concurrent_sessions = 1\n")
    sessions = await begin(tester, running=1, waiting=1)
    waiting = list(sessions)[1]
    assert tester.butler.spawner.stop(waiting)
    assert (await sessions[waiting]).outcome is Outcome.CANCELLED
    assert processes(tester), "the other goes on"
    tester.butler.spawner.stop_all()
    await asyncio.gather(*sessions.values())
