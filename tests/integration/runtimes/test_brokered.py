"""Sessions of the three CLIs whose model is reached through the key broker, cold and warm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from butlers.broker.ledger import Entry
from butlers.broker.server import Broker, serving
from butlers.config.settings import Settings
from butlers.db.provision import Provisioner
from butlers.domain.errors import OverBudget
from butlers.domain.session import Outcome
from butlers.sessions.pool import shared_pool
from butlers.wire.tokens import FleetKey
from support.cli_butler import CliButler, OpenCliButler
from support.clis import CLAUDE, CLIS, CODEX, Cli
from support.fake_model import Cut, Fail, FakeModel, Hang, Say, Use
from support.fake_model.turn import CACHED, INPUT, OUTPUT
from support.waiting import until

KEY = "key-of-the-session"  # the provider's real key, in the environment of the butler
WRITE = Use("write", text="milk")
LOOP = [WRITE] * 20
LIMIT = 3
PART = 1 << 22  # bytes of memory that are read at once
STARTS = [pytest.param(cli, "", id=f"{cli.name} cold") for cli in CLIS] + [
    pytest.param(cli, "warm = 1\n", id=f"{cli.name} warm") for cli in (CLAUDE, CODEX)
]


def entries(butler: CliButler) -> list[Entry]:
    return list(butler.broker.ledger.since(datetime.now(UTC) - timedelta(hours=1)))


def of_one(cli: Cli) -> int:
    """Tokens of one answer: Anthropic counts cached tokens beside the input."""
    return INPUT + OUTPUT + (CACHED if cli is CLAUDE else 0)


async def ready(butler: CliButler, start: str) -> None:
    if start:
        await butler.ready()


async def stored(butler: CliButler) -> dict[str, Any]:
    rows = await butler.rows("SELECT * FROM sessions ORDER BY started_at DESC LIMIT 1")
    return rows[0]


@pytest.mark.parametrize(("cli", "start"), STARTS)
async def test_message_is_answered_and_metered(
    open_cli_butler: OpenCliButler, cli: Cli, start: str
) -> None:
    async with open_cli_butler(cli, start, brokered=True) as butler:
        for _ in range(2):
            await ready(butler, start)
            butler.model.script = [WRITE, Say("It is written.")]
            with capture_logs() as logs:
                result = await butler.run()
            assert (result.outcome, result.error, result.text) == (
                Outcome.OK,
                None,
                "It is written.",
            )
            assert not [line for line in logs if "cold" in line["event"]]
            assert (result.usage.input_tokens or 0) + (result.usage.output_tokens or 0) == (
                2 * of_one(cli)
            )
        assert len(entries(butler)) == len(butler.model.turns) == 4
        assert sum(entry.tokens for entry in entries(butler)) == 4 * of_one(cli)
        row = await stored(butler)
        assert row["input_tokens"] + row["output_tokens"] == 2 * of_one(cli)
        sent = [request.headers for request in butler.model.requests]
        assert all(KEY in str(headers) for headers in sent), "the broker adds the key"
        assert butler.broker.grants._pending == {}


def memory(pid: int) -> Iterator[bytes]:
    """Every readable region of a process, in parts that overlap by the length of the key."""
    regions = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for region in regions:
            span, rights, *_ = region.split()
            first, last = (int(end, 16) for end in span.split("-"))
            if not rights.startswith("r") or region.endswith(("[vvar]", "[vsyscall]")):
                continue
            for start in range(first, last, PART):
                with suppress(OSError):  # a page of it may have no content
                    yield os.pread(file.fileno(), min(PART + len(KEY), last - start), start)


def holders(processes: set[int], text: bytes) -> set[int]:
    """The processes that have the text in their memory."""
    return {pid for pid in processes if any(text in part for part in memory(pid))}


def traces(processes: set[int], folder: Path) -> Iterator[tuple[str, bytes]]:
    """Environment and command line of processes, and every file of their sessions' folders."""
    for pid in processes:
        for name in ("environ", "cmdline"):
            yield f"{pid} {name}", Path(f"/proc/{pid}/{name}").read_bytes()
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            yield str(file), file.read_bytes()


@pytest.mark.parametrize(("cli", "start"), STARTS)
async def test_real_key_is_nowhere_in_the_session(
    open_cli_butler: OpenCliButler, cli: Cli, start: str
) -> None:
    async with open_cli_butler(cli, start, brokered=True) as butler:
        await ready(butler, start)
        butler.model.script = [WRITE, Hang()]
        running = asyncio.create_task(butler.run())
        await until("the model to hang", lambda: butler.model.hanging or None)
        processes = butler.waiting()
        processes |= {
            child.pid for pid in processes for child in psutil.Process(pid).children(recursive=True)
        }
        searched = dict(traces(processes, butler.home / "sessions"))
        assert len(searched) > 3
        assert [name for name, content in searched.items() if KEY.encode() in content] == []
        token = f"{cli.no_key}=butlers-".encode()
        assert any(token in content for content in searched.values()), "the variable is there"
        assert holders(processes, KEY.encode()) == set()
        assert holders(processes, token), "the search finds what is there"
        butler.model.release()
        assert (await running).outcome is Outcome.OK


@pytest.mark.parametrize(("cli", "start"), STARTS)
async def test_looping_model_is_stopped_at_the_turn_limit(
    open_cli_butler: OpenCliButler, cli: Cli, start: str
) -> None:
    async with open_cli_butler(cli, f"{start}max_turns = {LIMIT}\n", brokered=True) as butler:
        await ready(butler, start)
        butler.model.script = LOOP
        result = await butler.run()
        assert result.outcome is Outcome.LIMIT_REACHED
        assert len(butler.model.turns) == len(entries(butler)) == LIMIT
        assert result.text == (
            "I had to stop before I was finished: the session has used its 3 turns."
            " Done until then: write (3 times)."
        )
        row = await stored(butler)
        assert (row["outcome"], row["error"]) == (
            "limit-reached",
            "the session has used its 3 turns",
        )
        assert row["input_tokens"] + row["output_tokens"] == LIMIT * of_one(cli)


@pytest.mark.parametrize(("cli", "start"), STARTS)
async def test_looping_model_is_stopped_within_one_request_of_the_day(
    open_cli_butler: OpenCliButler, cli: Cli, start: str
) -> None:
    budget = f"{start}[butler.budget]\ndaily_tokens = 3000\n"
    async with open_cli_butler(cli, budget, brokered=True) as butler:
        await ready(butler, start)
        butler.model.script = LOOP
        result = await butler.run()
        assert result.outcome is Outcome.OVER_BUDGET
        assert "today's budget of 3,000 tokens is used up" in result.text
        assert "Done until then: write (3 times)." in result.text
        used = sum(entry.tokens for entry in entries(butler))
        assert 3000 <= used < 3000 + of_one(cli)
        with pytest.raises(OverBudget):
            await butler.run()
        assert len(butler.model.turns) == len(entries(butler))


@pytest.mark.parametrize("cli", [CLAUDE], ids=["claude-code"])
async def test_other_limits_of_a_session_stop_it(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    async with open_cli_butler(cli, "max_tokens = 2000\n", brokered=True) as butler:
        butler.model.script = LOOP
        result = await butler.run()
        assert (result.outcome, result.error) == (
            Outcome.LIMIT_REACHED,
            "the session has used its 2,000 tokens",
        )
        assert len(butler.model.turns) == 2


async def test_usage_of_a_stopped_session_is_known(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        butler.model.script = [WRITE, Hang()]
        session = butler.message()
        running = asyncio.create_task(butler.run(session))
        await until("the model to hang", lambda: butler.model.hanging or None)
        assert butler.butler.spawner.stop(session.session_id)
        result = await running
        assert result.outcome is Outcome.CANCELLED
        row = await stored(butler)
        assert row["input_tokens"] + row["output_tokens"] == of_one(cli)


async def test_session_over_its_time_has_its_usage(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, "timeout_s = 12\n", brokered=True) as butler:
        butler.model.script = [WRITE, Hang()]
        result = await butler.run()
        assert result.outcome is Outcome.TIMED_OUT
        row = await stored(butler)
        assert row["input_tokens"] + row["output_tokens"] == of_one(cli)


async def test_rate_limit_of_the_provider_is_the_sessions_outcome(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        limited = {"type": "rate_limit_error", "message": "Too many.", "code": 429}
        wait = {"Retry-After": "60"}
        butler.model.script = [Fail(429, {"type": "error", "error": limited}, headers=wait)]
        result = await butler.run()
        assert result.outcome is Outcome.RATE_LIMITED
        assert len(butler.model.turns) == 1, "the CLI does not ask again while the provider pauses"
        assert butler.broker.upstreams.circuits().popitem()[1]["state"] == "paused"
        assert 30 < (result.retry_after_s or 0) <= 60
        assert (await stored(butler))["input_tokens"] == 0


async def test_failure_of_the_provider_is_repeated_by_the_broker(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        butler.model.script = [Fail(500, times=2), Say("Here again.")]
        result = await butler.run()
        assert (result.outcome, result.text) == (Outcome.OK, "Here again.")
        assert len(butler.model.turns) == 3
        assert len(entries(butler)) == 1


@pytest.mark.parametrize("cli", [CLAUDE, CODEX], ids=["claude-code", "codex"])
async def test_answer_that_is_cut_is_asked_for_again(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        butler.model.script = [Cut(times=1), Say("Here again.")]
        result = await butler.run()
        assert (result.outcome, result.text) == (Outcome.OK, "Here again.")
        cut, whole = entries(butler)
        assert (whole.tokens, cut.session) == (of_one(cli), whole.session)


async def test_wrong_key_is_the_sessions_outcome(open_cli_butler: OpenCliButler, cli: Cli) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        butler.model.script = [Fail(401)]
        assert (await butler.run()).outcome is Outcome.NO_CREDENTIAL


@pytest.mark.parametrize("cli", [CODEX], ids=["codex"])
async def test_twenty_sessions_at_once_are_each_metered(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, "max_concurrent_sessions = 20\n", brokered=True) as butler:
        butler.model.script = [WRITE, Say("It is written.")]
        results = await asyncio.gather(*(butler.run() for _ in range(20)))
        assert {(result.outcome, result.text) for result in results} == {
            (Outcome.OK, "It is written.")
        }
        assert len(entries(butler)) == len(butler.model.turns) == 40
        rows = await butler.rows("SELECT input_tokens + output_tokens AS used FROM sessions")
        assert [row["used"] for row in rows] == [2 * of_one(cli)] * 20


async def test_session_uses_the_configured_model_and_nothing_is_refused(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        await butler.run()
        (entry,) = entries(butler)
        assert entry.model == cli.model
        assert list(butler.broker.audit.refusals()) == []


async def test_broker_that_is_down_fails_the_session(
    open_cli_butler: OpenCliButler, cli: Cli
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:
        butler.broker.is_serving = False
        result = await butler.run()
        assert (result.outcome, result.error) == (
            Outcome.BROKER_FAILED,
            "the key broker is not running",
        )
        assert butler.model.requests == [], "there is no direct connection"


@pytest.mark.parametrize("cli", [CLAUDE], ids=["claude-code"])
async def test_ledger_that_cannot_be_written_fails_the_session(
    open_cli_butler: OpenCliButler, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_cli_butler(cli, brokered=True) as butler:

        def full(_entry: Entry) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(butler.broker.ledger, "append", full)
        butler.model.script = LOOP
        result = await butler.run()
        assert result.outcome is Outcome.BROKER_FAILED
        assert "cannot write its ledger" in (result.error or "")
        assert len(butler.model.turns) == 1


@pytest.mark.parametrize("cli", [CLAUDE, CODEX], ids=["claude-code", "codex"])
async def test_process_of_the_shared_pool_is_bound_to_the_session_that_takes_it(
    offline: None,
    tmp_path: Path,
    home: Path,
    key: FleetKey,
    provisioner: Provisioner,
    database_name: str,
    model: FakeModel,
    prepared: None,
    cli: Cli,
) -> None:
    settings = Settings(home)
    async with (
        serving(Broker.of(settings)) as broker,
        shared_pool(home, 1, ["tester"], None, broker) as pool,
    ):
        assert pool is not None
        made = CliButler.create(
            tmp_path, home, key, provisioner, database_name, cli=cli, model=model
        )
        async with made.running(shared_pool=pool, broker=broker) as butler:
            await until("one to wait", lambda: pool.count == 1 or None)
            (unbound,) = broker.grants._grants.values()
            assert unbound.terms is None
            model.script = [WRITE, Say("It is written.")]
            with capture_logs() as logs:
                result = await butler.run()
            assert (result.outcome, result.text) == (Outcome.OK, "It is written.")
            assert not [line for line in logs if "cold" in line["event"]]
            assert unbound.used.tokens == 2 * of_one(cli)
            assert unbound not in broker.grants._grants.values(), "revoked with its session"
