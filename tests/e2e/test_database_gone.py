"""Loss of the database under a running fleet: degraded health, rejected calls, recovery by itself."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.db.embedded import EmbeddedPostgres
from butlers.domain.errors import ButlersError
from support.fleet import BUTLERS, Fleet, wait_for


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server that the fleet only knows by its address, so nobody but the test restarts it."""
    home = Path(tempfile.mkdtemp(prefix="bp-"))
    running = EmbeddedPostgres(home)
    running.acquire()
    yield running
    running.ensure_running()
    running.release()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def external(server: EmbeddedPostgres) -> Iterator[Fleet]:
    fleet = Fleet(Path(tempfile.mkdtemp(prefix="bh-")))
    try:
        for name in BUTLERS:
            fleet.start(name, DATABASE_URL=server.dsn())
        for name in BUTLERS:
            fleet.wait_healthy(name)
        yield fleet
    finally:
        fleet.close()


def kill(server: EmbeddedPostgres) -> None:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for("the server to be gone", lambda: not server.is_running())


def test_fleet_degrades_without_database_and_loses_nothing(
    external: Fleet, server: EmbeddedPostgres
) -> None:
    before = external.send("pulse 60")
    assert [reply.message for reply in external.replies(before)] == ["Logged: pulse 60 bpm."]

    kill(server)
    for name in BUTLERS:
        state = wait_for(
            f"{name} to notice",
            lambda name=name: (
                (found := external.health(name)) and found["health"] == "degraded" and found
            ),
        )
        assert state["database"] == "unreachable"
    with pytest.raises(ButlersError) as refused:
        external.send("pulse 61")
    assert refused.value.code == "database_unavailable"
    assert refused.value.retryable
    assert refused.value.hint

    server.ensure_running()
    for name in BUTLERS:
        external.wait_healthy(name)
    after = external.send("pulse 62")
    assert [reply.message for reply in external.replies(after)] == ["Logged: pulse 62 bpm."]
    history = external.call("health", "measurement_history", {"type": "pulse"})
    assert [row["value"] for row in history["measurements"]] == ["62", "60"]


def test_message_accepted_before_a_database_crash_is_answered_after(
    external: Fleet, server: EmbeddedPostgres
) -> None:
    external.stop("health")
    waiting = external.send("pulse 70")
    kill(server)
    server.ensure_running()
    external.start("health", DATABASE_URL=server.dsn())
    external.wait_healthy("health")
    assert [reply.message for reply in external.replies(waiting)] == ["Logged: pulse 70 bpm."]
    history = external.call("health", "measurement_history", {"type": "pulse"})
    assert [row["value"] for row in history["measurements"]] == ["70"]


def test_butlers_restart_the_embedded_database_server(fleet: Fleet) -> None:
    server = EmbeddedPostgres(fleet.home)
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for("a new server", lambda: server.pid not in (None, pid) and server.is_running())
    for name in BUTLERS:
        fleet.wait_healthy(name)
    assert [r.message for r in fleet.replies(fleet.send("pulse 71"))] == ["Logged: pulse 71 bpm."]
