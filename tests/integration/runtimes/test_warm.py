"""Warm processes of one butler: booted before a message, sealed until then, replaced by a cold start."""

from __future__ import annotations

import asyncio
import os
import signal
import tomllib
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from butlers.domain.clock import uuid7
from butlers.domain.redaction import SecretText
from butlers.domain.session import Outcome, SessionRequest
from butlers.secrets.master_key import MasterKey
from butlers.secrets.sealed import NewSecret
from butlers.secrets.vault import Vault
from butlers.sessions import pool
from support.cli_butler import CliButler, OpenCliButler
from support.clis import CLAUDE, CODEX, Cli
from support.fake_model import Hang, Say, Use
from support.in_process import InProcessButler
from support.waiting import until

WARM = (CLAUDE, CODEX)


@pytest.fixture(params=WARM, ids=lambda cli: cli.name)
def cli(request: pytest.FixtureRequest) -> Cli:
    chosen: Cli = request.param
    return chosen


@pytest.fixture
async def butler(open_cli_butler: OpenCliButler, cli: Cli) -> AsyncIterator[CliButler]:
    def furnish(tester: InProcessButler) -> None:
        (tester.directory / "CLAUDE.md").write_text("You are Tester, and you say AMARANTH.")

    async with open_cli_butler(cli, "warm = 1\n", furnish) as butler:
        yield butler


async def test_message_is_handled_by_a_warm_process(butler: CliButler) -> None:
    await butler.ready()
    before = butler.waiting()
    assert before
    assert butler.model.turns == [], "waiting costs no tokens"
    butler.model.script = [Use("write", text="milk"), Say("It is written.")]
    session = butler.message("we are out of milk")
    result = await butler.run(session)
    assert (result.outcome, result.error, result.text) == (Outcome.OK, None, "It is written.")
    assert [(call.tool, call.ok) for call in result.tool_calls] == [("write", True)]
    first = butler.model.turns[0]
    assert "AMARANTH" in str(first.body)
    assert "we are out of milk" in first.user
    (row,) = await butler.rows("SELECT session_id, request_id FROM tool_calls")
    assert (row["session_id"], row["request_id"]) == (session.session_id, session.request_id)
    await butler.ready()
    assert not before & butler.waiting(), "one process is one session"


async def test_waiting_process_cannot_call_tools(butler: CliButler) -> None:
    await butler.ready()
    (live,) = butler.butler.guard._live.values()
    assert not live.begun
    assert butler.butler.guard.count == 0


@pytest.mark.parametrize("cli", [CODEX], indirect=True, ids=["codex"])
async def test_warm_codex_has_the_butlers_tool_timeout(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    """It is told while it boots, and keeps it."""
    async with open_cli_butler(cli, "warm = 1\ntimeout_s = 1234\n") as butler:
        await butler.ready()
        (file,) = (butler.home / "sessions").rglob(".codex/config.toml")
        (server,) = tomllib.loads(file.read_text())["mcp_servers"].values()
        assert server["tool_timeout_sec"] == 1234


async def test_other_than_sealed_messages_start_cold(butler: CliButler) -> None:
    await butler.ready()
    before = butler.waiting()
    result = await butler.run(SessionRequest(uuid7(), "tidy up", "trigger"))
    assert result.outcome is Outcome.OK
    assert before <= butler.waiting()


async def test_changed_credential_retires_the_warm_process(
    butler: CliButler, cli: Cli, database_name: str
) -> None:
    """The one that waits holds the key that it was booted with, which may be revoked by now."""
    await butler.ready()
    before = butler.waiting()
    tester = butler
    vault = Vault(
        tester.provisioner, MasterKey.load(tester.butler.settings), {"tester": database_name}
    )
    await vault.put([NewSecret("tester", cli.no_key, SecretText("the-new-key"), None, None)])
    butler.model.script = [Use("write", text="milk"), Say("On the new key.")]
    result = await butler.run()
    assert (result.outcome, result.text) == (Outcome.OK, "On the new key.")
    await until("the old one to be gone", lambda: not before & butler.waiting() or None)
    await butler.ready()
    butler.model.script = [Say("And warm again.")]
    assert (await butler.run()).text == "And warm again."
    turns = [asked for asked in butler.model.requests if asked.method == "POST"]
    assert len(turns) == 3
    for asked in turns:
        sent = " ".join(asked.headers.values())
        assert "the-new-key" in sent
        assert "key-of-the-session" not in sent


async def test_dead_warm_process_is_replaced_by_a_cold_start(butler: CliButler) -> None:
    await butler.ready()
    for process in butler.waiting():
        os.kill(process, signal.SIGKILL)
    await until("it to be gone", lambda: not butler.waiting() or None)
    butler.model.script = [Say("Here all the same.")]
    assert (await butler.run()).text == "Here all the same."


async def test_warm_process_that_does_not_answer_is_replaced_by_a_cold_start(
    butler: CliButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    await butler.ready()
    monkeypatch.setattr("butlers.runtimes.dialogue.ANSWER_S", 0.2)
    frozen = butler.waiting()
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    butler.model.script = [Use("write", text="once"), Say("Cold, but here.")]
    with capture_logs() as logs:
        result = await butler.run()
    assert (result.outcome, result.text) == (Outcome.OK, "Cold, but here.")
    assert any(line["event"] == "warm start failed; starting cold" for line in logs)
    assert await butler.count("entries") == 1
    await until("the frozen one to be gone", lambda: not frozen & butler.waiting() or None)


async def test_a_cancelled_session_takes_its_process_with_it(butler: CliButler) -> None:
    await butler.ready()
    butler.model.script = [Hang()]
    session = butler.message()
    running = asyncio.create_task(butler.run(session))
    await until("the model to be asked", lambda: butler.model.hanging or None)
    assert butler.butler.spawner.stop(session.session_id)
    assert (await running).outcome is Outcome.CANCELLED
    await butler.ready()
    assert butler.waiting(), "and another waits in its place"


async def test_idle_warm_processes_are_ended(
    butler: CliButler, monkeypatch: pytest.MonkeyPatch
) -> None:
    await butler.ready()
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    butler.butler.warm.own._wake.set()
    await until("it to be let go", lambda: not butler.waiting() or None)
    monkeypatch.setattr(pool, "IDLE_S", 900.0)
    butler.model.script = [Say("Awake.")]
    assert (await butler.run()).text == "Awake."
    await butler.ready()


async def test_stop_ends_the_warm_processes(butler: CliButler) -> None:
    await butler.ready()
    await butler.butler.stop()
    assert butler.waiting() == set()


async def test_warm_pool_is_limited_by_slots(butler: CliButler) -> None:
    await butler.ready()
    await butler.butler.warm.own.empty()
    held = []
    while (slot := butler.butler.warm.own._slots.try_take()) is not None:
        held.append(slot[1])
    try:
        butler.model.script = [Say("Cold.")]
        assert (await butler.run()).text == "Cold."
        assert butler.butler.warm.own.count == 0
    finally:
        for descriptor in held:
            os.close(descriptor)
