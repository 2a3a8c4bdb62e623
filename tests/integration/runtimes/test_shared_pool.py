"""CLIs that wait for any butler: told with the message whose they are, and only where nothing differs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from butlers.db.provision import Provisioner
from butlers.domain.clock import uuid7
from butlers.domain.session import Outcome, SessionRequest
from butlers.sessions import pool as pools
from butlers.sessions.pool import SHARED, ProcessPool, shared_pool
from butlers.wire.tokens import FleetKey
from support.cli_butler import CliButler
from support.clis import CLAUDE, CODEX, Cli
from support.fake_model import FakeModel, Hang, Say, Use
from support.in_process import InProcessButler
from support.waiting import until

NAMES = ("tester", "second")


@dataclass
class Street:
    """Two butlers of one process, and what waits for either."""

    pool: ProcessPool
    places: dict[str, CliButler]
    home: Path
    stack: AsyncExitStack

    async def ready(self, number: int = 1) -> None:
        await until(f"{number} to wait", lambda: self.pool.count == number or None)

    def waiting(self) -> set[int]:
        mark = str(self.home / "sessions" / SHARED)
        return {pid for pid, home in _homes() if home.startswith(mark)}


def _homes() -> list[tuple[int, str]]:
    found = []
    for process in psutil.process_iter():
        try:
            found.append((process.pid, process.environ().get("HOME", "")))
        except psutil.Error:
            continue
    return found


@pytest.fixture(params=(CLAUDE, CODEX), ids=lambda cli: cli.name)
def cli(request: pytest.FixtureRequest) -> Cli:
    chosen: Cli = request.param
    return chosen


@pytest.fixture
async def street(
    offline: None,
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    model: FakeModel,
    prepared: None,
    cli: Cli,
) -> AsyncIterator[Street]:
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(shared_pool(home, 1, NAMES, None))
        assert pool is not None
        places = {}
        for name in NAMES:
            folder = tmp_path / name
            folder.mkdir()
            butler = CliButler.create(
                folder, home, key, provisioner, database_name, cli=cli, model=model
            )
            _rename(butler, name)
            places[name] = await stack.enter_async_context(butler.running(shared_pool=pool))
        yield Street(pool, places, home, stack)


def _rename(tester: InProcessButler, name: str) -> None:
    """A butler of that name in a schema of its own."""
    file = tester.directory / "butler.toml"
    text = file.read_text().replace('name = "tester"', f'name = "{name}"', 1)
    file.write_text(text.replace("db.name =", f'db.schema = "{name}"\ndb.name =', 1))
    (tester.directory / "CLAUDE.md").write_text(f"You are {name}, and you say {name.upper()}.")


async def test_two_butlers_use_the_shared_pool_in_turn(street: Street, model: FakeModel) -> None:
    for name, butler in street.places.items():
        await street.ready()
        before = street.waiting()
        assert before
        model.script = [Use("quick", text=name), Say(f"Said by {name}.")]
        session, first = butler.message(f"to {name}"), len(model.turns)
        with capture_logs() as logs:
            result = await butler.run(session)
        assert (result.outcome, result.error, result.text) == (
            Outcome.OK,
            None,
            f"Said by {name}.",
        )
        assert not [line for line in logs if "cold" in line["event"]]
        assert result.denials == ()
        turn = model.turns[first]
        assert name.upper() in turn.system
        assert f"to {name}" in turn.user
        assert turn.find("quick")
        (other,) = set(NAMES) - {name}
        assert not any(other in offered for offered in turn.offered)
        (row,) = await butler.rows("SELECT session_id, request_id FROM tool_calls")
        assert (row["session_id"], row["request_id"]) == (session.session_id, session.request_id)
        await street.ready()
        assert not before & street.waiting(), "one process is one session"


async def test_next_process_boots_while_a_message_is_classified(
    street: Street, model: FakeModel
) -> None:
    """After a long silence nothing waits: the boot begins with the message, and overlaps with its triage."""
    await street.ready()
    await street.pool.empty()
    decides, works = street.places.values()
    model.script = [Hang()]
    deciding = asyncio.create_task(decides.run())
    await until("it to think", lambda: model.hanging or None)
    await street.ready()
    booted = street.waiting()
    model.release()
    assert (await deciding).outcome is Outcome.OK
    model.script = [Say("At once.")]
    with capture_logs() as logs:
        assert (await works.run()).text == "At once."
    assert not [line for line in logs if "cold" in line["event"]]
    await street.ready()
    assert not booted & street.waiting(), "it was the one that booted meanwhile"


async def test_waiting_shared_process_has_no_token(street: Street, model: FakeModel) -> None:
    await street.ready()
    assert model.turns == [], "waiting costs no tokens"
    for butler in street.places.values():
        assert butler.butler.guard._live == {}
    for pid in street.waiting():
        process = psutil.Process(pid)
        assert "MCP_SERVERS" not in process.environ()
        assert not any("bs." in value for value in process.environ().values())
        assert os.listdir(process.cwd()) == []


async def test_other_than_sealed_messages_start_cold(street: Street) -> None:
    await street.ready()
    before = street.waiting()
    result = await street.places["tester"].run(SessionRequest(uuid7(), "tidy up", "trigger"))
    assert result.outcome is Outcome.OK
    assert before <= street.waiting()


async def test_shared_process_serves_only_its_own_credential(
    street: Street, model: FakeModel, cli: Cli
) -> None:
    """The one that waits holds the key that it was booted with."""
    await street.ready()
    before, butler = street.waiting(), street.places["second"]
    environ = {**butler.butler.settings.environ, cli.no_key: "another"}
    butler.butler.credentials._environ = environ  # as if it had been changed in the store
    model.script = [Say("On my own key.")]
    assert (await butler.run()).text == "On my own key."
    assert before <= street.waiting(), "it still waits for who has its key"
    model.script = [Say("On the shared one.")]
    assert (await street.places["tester"].run()).text == "On the shared one."
    assert not before & street.waiting()


async def test_process_with_an_unused_credential_is_ended(
    street: Street, model: FakeModel, cli: Cli
) -> None:
    await street.ready()
    before = street.waiting()
    for butler in street.places.values():
        environ = {**butler.butler.settings.environ, cli.no_key: "another"}
        butler.butler.credentials._environ = environ  # as if it had been changed in the store
        model.script = [Say("On the new key.")]
        assert (await butler.run()).text == "On the new key."
    await until("the old one to be gone", lambda: not before & street.waiting() or None)
    await street.ready()
    (held,) = street.pool._ready
    assert held.spec.env[cli.no_key] == "another"


async def test_warm_process_that_does_not_answer_is_replaced_by_a_cold_start(
    street: Street, model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await street.ready()
    monkeypatch.setattr("butlers.runtimes.dialogue.ANSWER_S", 0.2)
    frozen, butler = street.waiting(), street.places["tester"]
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    model.script = [Use("write", text="once"), Say("Cold, but here.")]
    with capture_logs() as logs:
        result = await butler.run()
    assert (result.outcome, result.text) == (Outcome.OK, "Cold, but here.")
    assert any(line["event"] == "warm start failed; starting cold" for line in logs)
    assert await butler.count("entries") == 1
    await until("the frozen one to be gone", lambda: not frozen & street.waiting() or None)


async def test_shared_pool_is_limited_by_slots(street: Street, model: FakeModel) -> None:
    await street.ready()
    await street.pool.empty()
    held = []
    while (slot := street.pool._slots.try_take()) is not None:
        held.append(slot[1])
    try:
        model.script = [Say("Cold.")]
        assert (await street.places["tester"].run()).text == "Cold."
        assert street.pool.count == 0
    finally:
        for descriptor in held:
            os.close(descriptor)


async def test_idle_shared_process_is_ended(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    await street.ready()
    monkeypatch.setattr(pools, "IDLE_S", 0.0)
    street.pool._wake.set()
    await until("it to be let go", lambda: not street.waiting() or None)


async def test_end_of_the_shared_pool_leaves_no_process(street: Street) -> None:
    await street.ready()
    assert street.waiting()
    await street.stack.aclose()
    assert street.waiting() == set()
    assert os.listdir(street.home / "sessions" / SHARED) == []
