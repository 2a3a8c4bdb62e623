"""Commands that ask every butler: partial answers, and finding the butler that holds an id."""

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
def key(home: Path, session_key: FleetKey) -> FleetKey:
    """Key of the prepared database, written to the home, where commands read it."""
    file = home / "keys" / "fleet.key"
    file.parent.mkdir(mode=0o700)
    file.write_bytes(session_key.secret)
    file.chmod(0o600)
    return session_key


@pytest.fixture
def butlers(tester: InProcessButler) -> Type:
    """Run a command with the home of the test butler."""

    async def typed(*arguments: str) -> Typed:
        env = butlers_environment(tester.home, 0)
        done = await asyncio.to_thread(run_butlers, *arguments, env=env, cwd=tester.home)
        return Typed(done.returncode, done.stdout, done.stderr)

    return typed


def plant_the_dead(tester: InProcessButler, name: str = "away") -> None:
    """Announce a butler that does not answer, as after a kill."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        announce(tester.home, name, f"http://127.0.0.1:{free.getsockname()[1]}/mcp")


async def keep_old(tester: InProcessButler, number: int) -> list[UUID]:
    """Insert old sessions, the oldest first, more than a list shows."""
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
async def test_list_is_an_error_if_no_butler_answers(
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
async def test_list_shows_other_butlers_and_fails_if_one_does_not_answer(
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


async def test_list_succeeds_if_all_butlers_answer(tester: InProcessButler, butlers: Type) -> None:
    typed = await butlers("sessions", "list", "--json")
    assert (typed.code, json.loads(typed.out), typed.err) == (0, [], "")


async def test_full_id_is_found_at_any_age(tester: InProcessButler, butlers: Type) -> None:
    oldest, *_newer = await keep_old(tester, 501)
    typed = await butlers("sessions", "show", str(oldest), "--json")
    assert (typed.code, json.loads(typed.out)["id"]) == (0, str(oldest))
    assert json.loads(typed.out)["butler"] == "tester"


async def test_full_id_needs_only_the_butler_that_holds_it(
    tester: InProcessButler, butlers: Type
) -> None:
    (known,) = await keep_old(tester, 1)
    plant_the_dead(tester)
    assert (await butlers("sessions", "show", str(known))).code == 0
    unknown = await butlers("sessions", "show", str(uuid7()))
    assert unknown.code == 1
    assert "away did not" in unknown.err, "it may be there"


@pytest.mark.parametrize("words", [["sessions", "show"], ["sessions", "stop"], ["dead", "show"]])
async def test_unknown_id_is_an_error(butlers: Type, words: list[str]) -> None:
    for named in (str(uuid7()), "ffff"):
        typed = await butlers(*words, named)
        assert typed.code == 1
        assert named in typed.err
        assert f"hint: `butlers {words[0]} list" in typed.err


async def test_ambiguous_prefix_is_an_error(tester: InProcessButler, butlers: Type) -> None:
    first, second = await keep_old(tester, 2)
    typed = await butlers("sessions", "show", str(first)[:4])
    assert typed.code == 1
    assert "2 sessions start with" in typed.err
    assert (await butlers("sessions", "show", str(second))).code == 0


async def test_dead_letter_is_shown_and_replayed_by_its_full_id(
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


async def test_trace_of_an_invalid_id_asks_no_butler(
    tester: InProcessButler, butlers: Type
) -> None:
    plant_the_dead(tester)
    typed = await butlers("trace", "not-a-uuid")
    assert typed.code == 1
    assert "error: 'not-a-uuid' is not a request id" in typed.err
    assert "hint:" in typed.err
    assert "away" not in typed.err


def test_hop_is_never_shown_before_the_first() -> None:
    first = {"at": "2026-01-01T00:00:00.500+00:00", "butler": "a", "hop": "call"}
    hop = {
        **first,
        "at": "2026-01-01T00:00:00.100+00:00",
        "tool": "x",
        "ok": True,
        "replayed": False,
    }
    assert trace_row(hop, first)[0] == "+0.000 s"
