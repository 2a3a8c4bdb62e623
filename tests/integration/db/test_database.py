"""The pool: typed errors for a server that is gone, and for nothing else; JSONB as Python data."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from butlers.db.database import IDLE_S, Database, Login, connect
from butlers.db.provision import ROLE_SETTINGS
from butlers.domain.errors import DatabaseUnavailable


async def test_jsonb_is_python_data(database: Database) -> None:
    value = {"a": [1, 2.5, None, True, "ü \U0001f600"], "b": {"c": "\\u0041"}}
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT $1::jsonb", value) == value
        assert await connection.fetchval("SELECT $1::jsonb ->> 'x'", {"x": "text"}) == "text"


@pytest.mark.parametrize(
    "error", [FileNotFoundError("/no"), TimeoutError(), ConnectionResetError()]
)
async def test_os_error_of_the_caller_is_not_an_outage(database: Database, error: OSError) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            await connection.execute("INSERT INTO state (key, value) VALUES ('k', '1')")
            raise error

    with pytest.raises(type(error)) as caught:
        await work()
    assert caught.value is error
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM state") == 0


@pytest.mark.parametrize(("cast", "value"), [("int", "text"), ("int", 2**40), ("jsonb", object())])
async def test_unencodable_argument_is_not_an_outage(
    database: Database, cast: str, value: object
) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            await connection.fetchval(f"SELECT $1::{cast}", value)

    with pytest.raises(asyncpg.DataError, match="invalid input"):
        await work()
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_session_that_is_ended_by_the_server_is_an_outage(
    database: Database, admin: Login
) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            other = await connect(admin, "tests")
            await other.fetchval("SELECT pg_terminate_backend($1)", connection.get_server_pid())
            await other.close()
            await connection.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable) as caught:
        await work()
    assert caught.value.retryable
    async with database.transaction() as connection:  # the next one finds a fresh connection
        assert await connection.fetchval("SELECT 1") == 1


async def test_idle_transaction_is_ended_as_an_outage(
    database: Database,
) -> None:
    async def freeze() -> None:
        async with database.transaction() as connection:
            limit = await connection.fetchval("SHOW idle_in_transaction_session_timeout")
            assert limit == f"{IDLE_S}s"
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '10ms'")
            await asyncio.sleep(0.2)
            await connection.execute("SELECT 1")

    with pytest.raises(DatabaseUnavailable):
        await freeze()


async def test_missing_server_is_an_outage() -> None:
    nobody = Login("postgresql://postgres@127.0.0.1:1/postgres", "postgres", "x", "postgres")
    with pytest.raises(DatabaseUnavailable):
        await connect(nobody, "tests")
    with pytest.raises(DatabaseUnavailable):
        await Database.open(nobody, "tests")


async def test_sql_error_is_not_an_outage(database: Database) -> None:
    async def work() -> None:
        async with database.transaction() as connection:
            await connection.execute("SELECT nonsense")

    with pytest.raises(asyncpg.UndefinedColumnError):
        await work()


async def test_wrong_call_of_ours_is_not_an_outage(database: Database) -> None:
    """asyncpg reports it with the type of a lost connection, and a retry would go on for a day."""

    async def too_few_arguments() -> None:
        async with database.transaction() as connection:
            await connection.fetchval("SELECT $1::int")

    with pytest.raises(asyncpg.InterfaceError):
        await too_few_arguments()


def test_a_login_does_not_print_its_passwords() -> None:
    shown = repr(Login("postgresql://postgres:hunter2@/x", "someone", "hunter3", "butlers"))
    assert "someone" in shown
    assert "hunter" not in shown


@pytest.mark.parametrize("ends_well", [True, False])
async def test_session_settings_do_not_leak_between_transactions(
    database: Database, ends_well: bool
) -> None:
    async with database.transaction() as connection:
        left_on = connection.get_server_pid()
        await connection.execute("SET statement_timeout = '77s'")
        await connection.execute("SELECT pg_advisory_lock(4711)")

    async def fail() -> None:
        async with database.transaction() as connection:
            assert connection.get_server_pid() == left_on
            raise ZeroDivisionError

    if not ends_well:
        with pytest.raises(ZeroDivisionError):
            await fail()
    async with database.transaction() as connection:
        assert connection.get_server_pid() == left_on
        limit = await connection.fetchval("SHOW statement_timeout")
        assert limit == ROLE_SETTINGS["statement_timeout"], "the role's own limit is back"
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1"
        assert await connection.fetchval(held, left_on) == 0
