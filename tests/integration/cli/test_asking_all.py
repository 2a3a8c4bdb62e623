"""Commands that ask every butler: what is shown when some do not answer, and who knows an id."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from butlers.cli.messages import trace_row
from butlers.domain.clock import uuid7
from butlers.wire.directory import announce
from butlers.wire.tokens import FleetKey
from support.fleet import butlers_environment
from support.forked import run_butlers
from support.in_process import InProcessButler

LONG_AGO = datetime.now(UTC) - timedelta(days=9)
LISTS = (["sessions", "list"], ["dead", "list"], ["trace", "01a1e259-9e22-7a39-9c45-9af2adcbd5f6"])


@dataclass(frozen=True)
class Typed:
    code: int
    out: str
    err: str


Type = Callable[..., Awaitable[Typed]]


@pytest.fixture
def key(home: Path) -> FleetKey:
    """The home's own, which a command reads there."""
    return FleetKey.load(home)


@pytest.fixture
def butlers(tester: InProcessButler) -> Type:
    """A command, typed where this house is the home."""

    async def typed(*arguments: str) -> Typed:
        env = butlers_environment(tester.home, 0)
        done = await asyncio.to_thread(run_butlers, *arguments, env=env, cwd=tester.home)
        return Typed(done.returncode, done.stdout, done.stderr)

    return typed


def plant_the_dead(tester: InProcessButler, name: str = "away") -> None:
    """A butler that was killed: its file is there, and nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        announce(tester.home, name, f"http://127.0.0.1:{free.getsockname()[1]}/mcp")


async def keep_old(tester: InProcessButler, number: int) -> list[UUID]:
    """Sessions of long ago, the oldest first, one of them behind what a list shows."""
    ids = [uuid7() for _ in range(number)]
    async with tester.butler.database.transaction() as connection:
        await connection.executemany(
            "INSERT INTO sessions (id, trigger_source, runtime, prompt, started_at, completed_at)"
            " VALUES ($1, 'route', 'x', 'y', $2, now())",
            [
                (one, datetime.now(UTC) - timedelta(days=9) + timedelta(seconds=n))
                for n, one in enumerate(ids)
            ],
        )
    return ids


async def bury(tester: InProcessButler) -> UUID:
    item_id = uuid7()
    async with tester.butler.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO queue_items (id, queue, key, payload, state, told, finished_at, max_attempts)"
            " VALUES ($1, 'nowhere', $2, '{}', 'dead', true, now(), 1)",
            item_id,
            str(item_id),
        )
    return item_id


@pytest.mark.parametrize("words", LISTS, ids=lambda words: words[0])
async def test_when_no_butler_answers_a_list_is_an_error_and_not_empty(
    tester: InProcessButler, butlers: Type, words: list[str]
) -> None:
    plant_the_dead(tester)
    plant_the_dead(tester, "gone")
    await tester.butler.stop()
    typed = await butlers(*words)
    assert typed.code == 1
    assert typed.out == ""
    assert "no butler answered" in typed.err
    assert "away" in typed.err
    assert "gone" in typed.err
    assert "hint:" in typed.err


@pytest.mark.parametrize("words", LISTS[:2], ids=lambda words: words[0])
async def test_when_one_does_not_answer_the_others_are_shown_and_it_is_said(
    tester: InProcessButler, butlers: Type, words: list[str]
) -> None:
    await keep_old(tester, 1)
    await bury(tester)
    plant_the_dead(tester)
    typed = await butlers(*words, "--json")
    assert typed.code == 1
    assert [found["butler"] for found in json.loads(typed.out)] == ["tester"]
    assert "away did not answer" in typed.err
    assert "hint:" in typed.err


async def test_when_all_answer_the_list_is_a_success(
    tester: InProcessButler, butlers: Type
) -> None:
    typed = await butlers("sessions", "list", "--json")
    assert (typed.code, json.loads(typed.out), typed.err) == (0, [], "")


async def test_a_whole_id_is_found_however_old_it_is(
    tester: InProcessButler, butlers: Type
) -> None:
    oldest, *_newer = await keep_old(tester, 501)
    typed = await butlers("sessions", "show", str(oldest), "--json")
    assert (typed.code, json.loads(typed.out)["id"]) == (0, str(oldest))
    assert json.loads(typed.out)["butler"] == "tester"


async def test_a_whole_id_needs_only_the_butler_that_knows_it(
    tester: InProcessButler, butlers: Type
) -> None:
    (known,) = await keep_old(tester, 1)
    plant_the_dead(tester)
    assert (await butlers("sessions", "show", str(known))).code == 0
    unknown = await butlers("sessions", "show", str(uuid7()))
    assert unknown.code == 1
    assert "away did not" in unknown.err, "it may be there"


@pytest.mark.parametrize("words", [["sessions", "show"], ["sessions", "stop"], ["dead", "show"]])
async def test_an_id_that_nobody_knows_says_so(butlers: Type, words: list[str]) -> None:
    for named in (str(uuid7()), "ffff"):
        typed = await butlers(*words, named)
        assert typed.code == 1
        assert named in typed.err
        assert f"hint: `butlers {words[0]} list" in typed.err


async def test_a_beginning_of_several_is_ambiguous(tester: InProcessButler, butlers: Type) -> None:
    first, second = await keep_old(tester, 2)
    typed = await butlers("sessions", "show", str(first)[:4])
    assert typed.code == 1
    assert "2 sessions start with" in typed.err
    assert (await butlers("sessions", "show", str(second))).code == 0


async def test_a_dead_letter_is_shown_and_replayed_by_its_whole_id(
    tester: InProcessButler, butlers: Type
) -> None:
    item_id = await bury(tester)
    shown = await butlers("dead", "show", str(item_id))
    assert (shown.code, json.loads(shown.out)["queue"]) == (0, "nowhere")
    assert (await butlers("dead", "replay", str(item_id))).code == 0
    (row,) = await tester.rows("SELECT state FROM queue_items WHERE id = $1", item_id)
    assert row["state"] == "ready"
    again = await butlers("dead", "replay", str(item_id))
    assert (again.code, "no butler has a dead letter" in again.err) == (1, True)


async def test_a_trace_of_what_is_no_id_asks_nobody(tester: InProcessButler, butlers: Type) -> None:
    plant_the_dead(tester)
    typed = await butlers("trace", "not-a-uuid")
    assert typed.code == 1
    assert "error: 'not-a-uuid' is not a request id" in typed.err
    assert "hint:" in typed.err
    assert "away" not in typed.err


def test_a_hop_is_never_before_the_first() -> None:
    first = {"at": "2026-01-01T00:00:00.500+00:00", "butler": "a", "hop": "call"}
    hop = {
        **first,
        "at": "2026-01-01T00:00:00.100+00:00",
        "tool": "x",
        "ok": True,
        "replayed": False,
    }
    assert trace_row(hop, first)[0] == "+0.000 s"
