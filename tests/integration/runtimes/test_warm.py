"""CLIs that wait for a message: booted before it comes, sealed until then, and given up when in doubt."""

from __future__ import annotations

import asyncio
import os
import signal
import tomllib
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from butlers.domain.ids import uuid7
from butlers.domain.redaction import SecretText
from butlers.domain.session import Outcome, SessionRequest
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret
from butlers.secrets.vault import Vault
from butlers.sessions import pool
from support.cli_butler import OpenPlace, Place
from support.clis import CLAUDE, CODEX, Cli
from support.fake_model import Hang, Say, Use
from support.in_process import House, until

WARM = (CLAUDE, CODEX)


@pytest.fixture(params=WARM, ids=lambda cli: cli.name)
def cli(request: pytest.FixtureRequest) -> Cli:
    chosen: Cli = request.param
    return chosen


@pytest.fixture
async def place(open_place: OpenPlace, cli: Cli) -> AsyncIterator[Place]:
    def furnish(house: House) -> None:
        (house.directory / "CLAUDE.md").write_text("You are Tester, and you say AMARANTH.")

    async with open_place(cli, "warm = 1\n", furnish) as place:
        yield place


async def test_a_message_is_asked_of_one_that_waits(place: Place) -> None:
    await place.ready()
    before = place.waiting()
    assert before
    assert place.model.turns == [], "waiting costs no tokens"
    place.model.script = [Use("write", text="milk"), Say("It is written.")]
    session = place.message("we are out of milk")
    result = await place.run(session)
    assert (result.outcome, result.error, result.text) == (Outcome.OK, None, "It is written.")
    assert [(call.tool, call.ok) for call in result.tool_calls] == [("write", True)]
    first = place.model.turns[0]
    assert "AMARANTH" in str(first.body)
    assert "we are out of milk" in first.user
    (row,) = await place.house.rows("SELECT session_id, request_id FROM tool_calls")
    assert (row["session_id"], row["request_id"]) == (session.session_id, session.request_id)
    await place.ready()
    assert not before & place.waiting(), "one process is one session"


async def test_one_that_waits_can_call_nothing(place: Place) -> None:
    await place.ready()
    (live,) = place.house.butler.guard._live.values()
    assert not live.begun
    assert place.house.butler.guard.count == 0


@pytest.mark.parametrize("cli", [CODEX], indirect=True, ids=["codex"])
async def test_one_that_waits_gives_a_call_the_time_of_its_butlers_sessions(
    open_place: OpenPlace, cli: Cli
) -> None:
    """It is told while it boots, and keeps it."""
    async with open_place(cli, "warm = 1\ntimeout_s = 1234\n") as place:
        await place.ready()
        (file,) = (place.house.home / "sessions").rglob(".codex/config.toml")
        (server,) = tomllib.loads(file.read_text())["mcp_servers"].values()
        assert server["tool_timeout_sec"] == 1234


async def test_what_is_not_a_sealed_message_starts_cold(place: Place) -> None:
    await place.ready()
    before = place.waiting()
    result = await place.run(SessionRequest(uuid7(), "tidy up", "trigger"))
    assert result.outcome is Outcome.OK
    assert before <= place.waiting()


async def test_a_key_that_was_changed_is_the_one_that_is_used(
    place: Place, cli: Cli, database_name: str
) -> None:
    """The one that waits holds the key that it was booted with, which may be revoked by now."""
    await place.ready()
    before = place.waiting()
    house = place.house
    vault = Vault(
        house.provisioner, MasterKey.load(house.butler.settings), {"tester": database_name}
    )
    await vault.put([NewSecret("tester", cli.no_key, SecretText("the-new-key"), None, None)])
    place.model.script = [Use("write", text="milk"), Say("On the new key.")]
    result = await place.run()
    assert (result.outcome, result.text) == (Outcome.OK, "On the new key.")
    await until("the old one to be gone", lambda: not before & place.waiting() or None)
    await place.ready()
    place.model.script = [Say("And warm again.")]
    assert (await place.run()).text == "And warm again."
    turns = [asked for asked in place.model.requests if asked.method == "POST"]
    assert len(turns) == 3
    for asked in turns:
        sent = " ".join(asked.headers.values())
        assert "the-new-key" in sent
        assert "key-of-the-session" not in sent


async def test_one_that_died_while_it_waited_is_replaced_by_a_cold_start(place: Place) -> None:
    await place.ready()
    for process in place.waiting():
        os.kill(process, signal.SIGKILL)
    await until("it to be gone", lambda: not place.waiting() or None)
    place.model.script = [Say("Here all the same.")]
    assert (await place.run()).text == "Here all the same."


async def test_a_control_protocol_that_misbehaves_is_given_up_for_a_cold_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.ready()
    monkeypatch.setattr("butlers.runtimes.dialogue.ANSWER_S", 0.2)
    frozen = place.waiting()
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    place.model.script = [Use("write", text="once"), Say("Cold, but here.")]
    with capture_logs() as logs:
        result = await place.run()
    assert (result.outcome, result.text) == (Outcome.OK, "Cold, but here.")
    assert any(line["event"] == "warm start failed; starting cold" for line in logs)
    assert await place.house.count("entries") == 1
    await until("the frozen one to be gone", lambda: not frozen & place.waiting() or None)


async def test_a_cancelled_session_takes_its_process_with_it(place: Place) -> None:
    await place.ready()
    place.model.script = [Hang()]
    session = place.message()
    running = asyncio.create_task(place.run(session))
    await until("the model to be asked", lambda: place.model.hanging or None)
    assert place.house.butler.spawner.stop(session.session_id)
    assert (await running).outcome is Outcome.CANCELLED
    await place.ready()
    assert place.waiting(), "and another waits in its place"


async def test_they_are_let_go_when_nothing_comes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.ready()
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    place.house.butler.warm._wanted.set()
    await until("it to be let go", lambda: not place.waiting() or None)
    monkeypatch.setattr(pool, "IDLE_S", 900.0)
    place.model.script = [Say("Awake.")]
    assert (await place.run()).text == "Awake."
    await place.ready()


async def test_a_stop_leaves_none_behind(place: Place) -> None:
    await place.ready()
    await place.house.butler.stop()
    assert place.waiting() == set()


async def test_the_memory_bounds_them(place: Place) -> None:
    await place.ready()
    await place.house.butler.warm._let_go()
    held = []
    while (slot := place.house.butler.warm._slots.try_take()) is not None:
        held.append(slot[1])
    try:
        place.model.script = [Say("Cold.")]
        assert (await place.run()).text == "Cold."
        assert place.house.butler.warm.count == 0
    finally:
        for descriptor in held:
            os.close(descriptor)
