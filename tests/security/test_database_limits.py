"""The boundary between database roles: locks, connections, and the server's own databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from butlers.db.database import Connection, Database, Login, connect, lock_until_commit
from butlers.db.embedded.server import EmbeddedPostgres
from butlers.db.provision import CONNECTIONS, PROVISION_LOCK, ButlerSchema, Provisioner
from butlers.wire.tokens import FleetKey

GUESSES = (
    "pause",
    "budget",
    "held",
    "butlers:provision",
    "alembic:victim",
    "alembic:shared",
    "victim.budget",
    "pause victim",
)

# Each is tried as a butler's role; {pid} is a backend of another role, {role} that role.
EXCESSES = {
    "become another": 'SET ROLE "{role}"',
    "become the administrator": "SET ROLE postgres",
    "authorization": 'SET SESSION AUTHORIZATION "{role}"',
    "read a file": "SELECT pg_read_file('/etc/passwd')",
    "read a binary file": "SELECT pg_read_binary_file('postgresql.conf')",
    "list a folder": "SELECT pg_ls_dir('.')",
    "copy from a file": "COPY things FROM '/etc/passwd'",
    "copy to a file": "COPY things TO '/tmp/butlers-stolen'",
    "copy from a program": "COPY things FROM PROGRAM 'id'",
    "copy to a program": "COPY things TO PROGRAM 'cat'",
    "import a large object": "SELECT lo_import('/etc/passwd')",
    "export a large object": "SELECT lo_export(1, '/tmp/butlers-stolen')",
    "untrusted extension": "CREATE EXTENSION file_fdw",
    "untrusted language": "CREATE FUNCTION f() RETURNS int LANGUAGE c AS 'libc.so.6', 'getpid'",
    "load a library": "LOAD 'libc.so.6'",
    "superuser": "ALTER ROLE current_user SUPERUSER",
    "past row security": "ALTER ROLE current_user BYPASSRLS",
    "more connections": "ALTER ROLE current_user CONNECTION LIMIT -1",
    "another's password": "ALTER ROLE \"{role}\" PASSWORD 'mine'",
    "join a reader of files": "GRANT pg_read_server_files TO current_user",
    "table in shared": "CREATE TABLE shared.planted (x int)",
    "table in public": "CREATE TABLE public.planted (x int)",
    "function in shared": "CREATE FUNCTION shared.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "function in public": "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "type in public": "CREATE TYPE public.planted AS (x int)",
    "passwords": "SELECT rolpassword FROM pg_authid",
    "passwords by view": "SELECT passwd FROM pg_shadow",
    "end another": "SELECT pg_terminate_backend({pid})",
    "cancel another": "SELECT pg_cancel_backend({pid})",
    "settings of the server": "ALTER SYSTEM SET work_mem = '1GB'",
    "access rules": "SELECT * FROM pg_hba_file_rules",
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provisioner]:
    """A server of its own, because the server's own databases are closed on it."""
    home: Path = tmp_path_factory.mktemp("h")
    server = EmbeddedPostgres(home)
    server.acquire()
    try:
        admin = Login(server.dsn(), "postgres", None, "postgres", ours=True)
        yield Provisioner(admin, FleetKey.load(home))
    finally:
        server.release()


async def lock_soon(connection: Connection, name: str) -> None:
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '500ms'")
        await lock_until_commit(connection, name)


async def roles(fleet: Provisioner) -> tuple[Login, Login]:
    hostile = await fleet.provision(ButlerSchema("hostile", "butlers", "hostile"))
    victim = await fleet.provision(ButlerSchema("victim", "butlers", "victim"))
    return hostile, victim


async def test_guessed_advisory_locks_block_nobody(fleet: Provisioner) -> None:
    """Attack: as one butler's role, take every lock that another butler or a migration waits for."""
    hostile, victim = await roles(fleet)
    attacker = await connect(hostile, "attack")
    try:
        for name in GUESSES:
            await attacker.execute("SELECT pg_advisory_lock(hashtext($1))", name)
            await attacker.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
            await attacker.execute(
                "SELECT pg_advisory_lock(hashtextextended($1, $2))", name, hostile.lock_salt
            )
        other = await connect(victim, "victim")
        try:
            for name in GUESSES:
                await lock_soon(other, name)
        finally:
            await other.close()
        again = await fleet.provision(ButlerSchema("victim", "butlers", "victim"))
        assert again == victim
    finally:
        await attacker.close()


async def test_locks_of_one_butler_still_exclude_each_other(fleet: Provisioner) -> None:
    """Not an attack: two connections of one butler, and of the administrator, share their locks."""
    _, victim = await roles(fleet)
    for login in (victim, fleet._admin_in("butlers")):
        first, second = await connect(login, "a"), await connect(login, "b")
        try:
            async with first.transaction():
                await lock_until_commit(first, PROVISION_LOCK)
                with pytest.raises(asyncpg.LockNotAvailableError):
                    await lock_soon(second, PROVISION_LOCK)
        finally:
            await first.close()
            await second.close()


@pytest.mark.parametrize("database", ["postgres", "template1"])
async def test_a_role_cannot_enter_the_servers_own_databases(
    fleet: Provisioner, database: str
) -> None:
    """Attack: connect to template1, so that no database can be created, or plant objects in it."""
    hostile, _ = await roles(fleet)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await asyncpg.connect(**{**hostile.arguments("attack"), "database": database})


async def test_a_role_has_limits_on_connections_statements_and_locks(fleet: Provisioner) -> None:
    """Attack: take all connections of the server, or hold a lock with a statement that never ends."""
    hostile, _ = await roles(fleet)
    taken = []
    try:
        while len(taken) < CONNECTIONS:
            taken.append(await asyncpg.connect(**hostile.arguments("attack")))
        with pytest.raises(asyncpg.TooManyConnectionsError):
            await asyncpg.connect(**hostile.arguments("attack"))
        assert await taken[0].fetchval("SHOW statement_timeout") == "10min"
        assert await taken[0].fetchval("SHOW lock_timeout") == "1min"
    finally:
        for connection in taken:
            await connection.close()


async def test_the_salt_of_a_role_is_not_visible_to_others(fleet: Provisioner) -> None:
    """Attack: read the salt of another butler's locks from the server's catalogs."""
    hostile, victim = await roles(fleet)
    database = await Database.open(victim, "victim", size=1)
    attacker = await connect(hostile, "attack")
    try:
        rows = await attacker.fetch("SELECT * FROM pg_stat_activity")
        rows += await attacker.fetch("SELECT * FROM pg_db_role_setting")
        rows += await attacker.fetch("SELECT * FROM pg_settings")
        assert str(victim.lock_salt) not in str([dict(row) for row in rows])
    finally:
        await attacker.close()
        await database.close()


async def test_a_role_has_no_power_over_the_server(fleet: Provisioner) -> None:
    """Attack: as a butler's role, take another role, read files, run programs, plant objects, end others."""
    hostile, victim = await roles(fleet)
    attacker, other = await connect(hostile, "attack"), await connect(victim, "victim")
    held = []
    try:
        await attacker.execute("CREATE TABLE IF NOT EXISTS things (x text)")
        for why, statement in EXCESSES.items():
            text = statement.format(role=victim.user, pid=other.get_server_pid())
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await attacker.execute(text)
            held.append(why)
        assert await other.fetchval("SELECT 1") == 1
    finally:
        await attacker.close()
        await other.close()
    assert held == list(EXCESSES)


async def test_a_role_cannot_read_the_queries_of_others(fleet: Provisioner) -> None:
    """Attack: read a secret from the text of a statement that another butler runs."""
    hostile, victim = await roles(fleet)
    attacker, other = await connect(hostile, "attack"), await connect(victim, "victim")
    try:
        assert await other.fetchval("SELECT 'planted-in-a-query'") == "planted-in-a-query"
        rows = await attacker.fetch("SELECT * FROM pg_stat_activity")
        theirs = [row for row in rows if row["pid"] == other.get_server_pid()]
        assert [row["query"] for row in theirs] == ["<insufficient privilege>"]
        assert "planted" not in str([dict(row) for row in rows])
    finally:
        await attacker.close()
        await other.close()
