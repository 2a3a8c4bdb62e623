"""The call journal: a call happens once, however often it is made again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from butlers.db.database import Connection, Database
from butlers.domain.provenance import Provenance, Trust
from butlers.queue import journal
from butlers.queue.journal import CallCounter, CallKey, Recorded, hash_arguments

OWNER = Provenance(Trust.OWNER)


async def call(connection: Connection, key: CallKey, who: str) -> object:
    """A tool call that writes, as the daemon makes it."""
    done = await journal.begin(connection, key, OWNER)
    if done is not None:
        return done.result
    await connection.execute("INSERT INTO effects (key, worker) VALUES ($1, $2)", key.tool, who)
    await journal.record(connection, key, {"by": who})
    return {"by": who}


async def effects(database: Database) -> list[str]:
    async with database.transaction() as connection:
        return [row["worker"] for row in await connection.fetch("SELECT worker FROM effects")]


def key_of(tool: str = "add", **arguments: object) -> CallKey:
    return CallCounter(uuid4()).next_key(tool, arguments)


async def test_the_same_call_again_returns_what_was_recorded(recorded_database: Database) -> None:
    key, session = key_of(weight=80.4), uuid4()
    async with recorded_database.transaction() as connection:
        assert await journal.begin(connection, key, replace(OWNER, session_id=session)) is None
        await journal.record(connection, key, {"kg": 80.4, "note": "über", "list": [1, None]})
    for _ in range(2):
        async with recorded_database.transaction() as connection:
            again = await journal.begin(connection, key, OWNER)
            assert again == Recorded({"kg": 80.4, "note": "über", "list": [1, None]})
            assert await connection.fetchval("SELECT session_id FROM call_journal") == session


async def test_a_run_of_a_session_again_repeats_nothing(recorded_database: Database) -> None:
    request = uuid4()

    async def run(who: str, calls: int) -> list[object]:
        counter = CallCounter(request)
        answers = []
        for number in range(calls):
            async with recorded_database.transaction() as connection:
                key = counter.next_key("add", {"number": number})
                answers.append(await call(connection, key, who))
        return answers

    assert await run("first", 2) == [{"by": "first"}] * 2
    # It died there; the second run finds what the first did, and goes on.
    assert await run("second", 4) == [{"by": "first"}] * 2 + [{"by": "second"}] * 2
    assert await effects(recorded_database) == ["first", "first", "second", "second"]


async def test_two_runs_of_one_call_at_once_have_one_effect_and_one_answer(
    recorded_database: Database,
) -> None:
    key = key_of()
    began = asyncio.Event()

    async def first() -> object:
        async with recorded_database.transaction() as connection:
            assert await journal.begin(connection, key, OWNER) is None
            began.set()
            async with recorded_database.transaction() as watcher:
                # Commit only when the other one really waits for us.
                while not await watcher.fetchval(
                    "SELECT count(*) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND wait_event = 'transactionid'"
                ):
                    await watcher.execute("SELECT pg_stat_clear_snapshot()")
                    await asyncio.sleep(0.005)
            await connection.execute("INSERT INTO effects VALUES ('add', 'first')")
            await journal.record(connection, key, {"by": "first"})
            return {"by": "first"}

    async def second() -> object:
        await began.wait()
        async with recorded_database.transaction() as connection:
            return await call(connection, key, "second")

    assert await asyncio.gather(first(), second()) == [{"by": "first"}] * 2
    assert await effects(recorded_database) == ["first"]


async def test_many_runs_of_one_call_at_once(recorded_database: Database) -> None:
    key = key_of()

    async def run(who: str) -> object:
        async with recorded_database.transaction() as connection:
            return await call(connection, key, who)

    answers = await asyncio.gather(*(run(f"run {number}") for number in range(20)))
    [one] = await effects(recorded_database)
    assert answers == [{"by": one}] * 20


async def test_call_runs_after_a_concurrent_run_failed(recorded_database: Database) -> None:
    key = key_of()
    began = asyncio.Event()

    async def failing() -> None:
        async with recorded_database.transaction() as connection:
            await call(connection, key, "failing")
            began.set()
            await asyncio.sleep(0.02)
            raise LookupError

    async def second() -> object:
        await began.wait()
        async with recorded_database.transaction() as connection:
            return await call(connection, key, "second")

    failed, answer = await asyncio.gather(failing(), second(), return_exceptions=True)
    assert isinstance(failed, LookupError)
    assert answer == {"by": "second"}
    assert await effects(recorded_database) == ["second"]


async def test_intended_second_call_runs(recorded_database: Database) -> None:
    counter = CallCounter(uuid4())
    first, second = (counter.next_key("add", {"coffee": 1}) for _ in range(2))
    assert (first.ordinal, second.ordinal) == (0, 1)
    for key, who in ((first, "first"), (second, "second"), (first, "again")):
        async with recorded_database.transaction() as connection:
            await call(connection, key, who)
    assert await effects(recorded_database) == ["first", "second"]


async def test_other_requests_tools_and_arguments_are_other_calls(
    recorded_database: Database,
) -> None:
    counter = CallCounter(uuid4())
    keys = [
        counter.next_key("add", {"n": 1}),
        counter.next_key("add", {"n": 2}),
        counter.next_key("remove", {"n": 1}),
        CallCounter(uuid4()).next_key("add", {"n": 1}),
    ]
    assert {key.ordinal for key in keys} == {0}
    for key in keys:
        async with recorded_database.transaction() as connection:
            assert await call(connection, key, "x") == {"by": "x"}
    assert len(await effects(recorded_database)) == 4


async def test_a_rollback_leaves_neither_effect_nor_journal(recorded_database: Database) -> None:
    key = key_of()
    with suppress(LookupError):
        async with recorded_database.transaction() as connection:
            await call(connection, key, "rolled back")
            raise LookupError
    assert await effects(recorded_database) == []
    async with recorded_database.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM call_journal") == 0
        assert await journal.begin(connection, key, OWNER) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_the_order_of_arguments_does_not_matter(arguments: dict[str, object]) -> None:
    turned = dict(reversed(arguments.items()))
    assert hash_arguments(turned) == hash_arguments(arguments)
    assert hash_arguments({**arguments, "one more \x00": 1}) != hash_arguments(arguments)


def test_any_text_can_be_an_argument() -> None:
    assert hash_arguments({"text": "\ud800 \x00 é"}) != hash_arguments({"text": "? \x00 é"})
