"""Warm processes of the shared pool: connected with the message, for butlers of an equal spec."""

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
class TwoButlers:
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
async def pair(
    offline: None,
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    model: FakeModel,
    prepared: None,
    cli: Cli,
) -> AsyncIterator[TwoButlers]:
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
        yield TwoButlers(pool, places, home, stack)


def _rename(tester: InProcessButler, name: str) -> None:
    """A butler of that name in a schema of its own."""
    file = tester.directory / "butler.toml"
    text = file.read_text().replace('name = "tester"', f'name = "{name}"', 1)
    file.write_text(text.replace("db.name =", f'db.schema = "{name}"\ndb.name =', 1))
    (tester.directory / "CLAUDE.md").write_text(f"You are {name}, and you say {name.upper()}.")


async def test_two_butlers_use_the_shared_pool_in_turn(pair: TwoButlers, model: FakeModel) -> None:
    for name, butler in pair.places.items():
        await pair.ready()
        before = pair.waiting()
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
        await pair.ready()
        assert not before & pair.waiting(), "one process is one session"


async def test_next_process_boots_while_a_message_is_classified(
    pair: TwoButlers, model: FakeModel
) -> None:
    """After a long silence nothing waits: the boot begins with the message, and overlaps with its triage."""
    await pair.ready()
    await pair.pool.empty()
    decides, works = pair.places.values()
    model.script = [Hang()]
    deciding = asyncio.create_task(decides.run())
    await until("it to think", lambda: model.hanging or None)
    await pair.ready()
    booted = pair.waiting()
    model.release()
    assert (await deciding).outcome is Outcome.OK
    model.script = [Say("At once.")]
    with capture_logs() as logs:
        assert (await works.run()).text == "At once."
    assert not [line for line in logs if "cold" in line["event"]]
    await pair.ready()
    assert not booted & pair.waiting(), "it was the one that booted meanwhile"


async def test_waiting_shared_process_has_no_token(pair: TwoButlers, model: FakeModel) -> None:
    await pair.ready()
    assert model.turns == [], "waiting costs no tokens"
    for butler in pair.places.values():
        assert butler.butler.guard._live == {}
    for pid in pair.waiting():
        process = psutil.Process(pid)
        assert "MCP_SERVERS" not in process.environ()
        assert not any("bs." in value for value in process.environ().values())
        assert os.listdir(process.cwd()) == []


async def test_other_than_sealed_messages_start_cold(pair: TwoButlers) -> None:
    await pair.ready()
    before = pair.waiting()
    result = await pair.places["tester"].run(SessionRequest(uuid7(), "tidy up", "trigger"))
    assert result.outcome is Outcome.OK
    assert before <= pair.waiting()


async def test_shared_process_serves_only_its_own_credential(
    pair: TwoButlers, model: FakeModel, cli: Cli
) -> None:
    """The one that waits holds the key that it was booted with."""
    await pair.ready()
    before, butler = pair.waiting(), pair.places["second"]
    environ = {**butler.butler.settings.environ, cli.no_key: "another"}
    butler.butler.credentials._environ = environ  # as if it had been changed in the store
    model.script = [Say("On my own key.")]
    assert (await butler.run()).text == "On my own key."
    assert before <= pair.waiting(), "it still waits for who has its key"
    model.script = [Say("On the shared one.")]
    assert (await pair.places["tester"].run()).text == "On the shared one."
    assert not before & pair.waiting()


async def test_process_with_an_unused_credential_is_ended(
    pair: TwoButlers, model: FakeModel, cli: Cli
) -> None:
    await pair.ready()
    before = pair.waiting()
    for butler in pair.places.values():
        environ = {**butler.butler.settings.environ, cli.no_key: "another"}
        butler.butler.credentials._environ = environ  # as if it had been changed in the store
        model.script = [Say("On the new key.")]
        assert (await butler.run()).text == "On the new key."
    await until("the old one to be gone", lambda: not before & pair.waiting() or None)
    await pair.ready()
    (held,) = pair.pool._ready
    assert held.spec.env[cli.no_key] == "another"


async def test_warm_process_that_does_not_answer_is_replaced_by_a_cold_start(
    pair: TwoButlers, model: FakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.ready()
    monkeypatch.setattr("butlers.runtimes.dialogue.ANSWER_S", 0.2)
    frozen, butler = pair.waiting(), pair.places["tester"]
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    model.script = [Use("write", text="once"), Say("Cold, but here.")]
    with capture_logs() as logs:
        result = await butler.run()
    assert (result.outcome, result.text) == (Outcome.OK, "Cold, but here.")
    assert any(line["event"] == "warm start failed; starting cold" for line in logs)
    assert await butler.count("entries") == 1
    await until("the frozen one to be gone", lambda: not frozen & pair.waiting() or None)


async def test_shared_pool_is_limited_by_slots(pair: TwoButlers, model: FakeModel) -> None:
    await pair.ready()
    await pair.pool.empty()
    held = []
    while (slot := pair.pool._slots.try_take()) is not None:
        held.append(slot[1])
    try:
        model.script = [Say("Cold.")]
        assert (await pair.places["tester"].run()).text == "Cold."
        assert pair.pool.count == 0
    finally:
        for descriptor in held:
            os.close(descriptor)


async def test_idle_shared_process_is_ended(
    pair: TwoButlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.ready()
    monkeypatch.setattr(pools, "IDLE_S", 0.0)
    pair.pool._wake.set()
    await until("it to be let go", lambda: not pair.waiting() or None)


async def test_end_of_the_shared_pool_leaves_no_process(pair: TwoButlers) -> None:
    await pair.ready()
    assert pair.waiting()
    await pair.stack.aclose()
    assert pair.waiting() == set()
    assert os.listdir(pair.home / "sessions" / SHARED) == []
