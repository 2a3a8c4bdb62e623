"""Provisioning, and the isolation of butlers: a role has no rights on other butlers' data."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from butlers.config.butler import load_butler_config
from butlers.config.settings import Settings
from butlers.daemon.butler import READY, Butler
from butlers.db.database import Database, Login, connect
from butlers.db.provision import SHARED, ButlerSchema, Provisioner
from butlers.domain.errors import DatabaseUnavailable, PhaseFailed, ProvisioningError
from butlers.wire.tokens import FleetKey
from support.not_served import assert_not_served

FLEET = ("switchboard", "messenger", "general", "health")
REFUSED = asyncpg.InsufficientPrivilegeError

# Each as one butler's role against another's schema and role.
TRESPASSES = {
    "select": "SELECT * FROM {schema}.things",
    "insert": "INSERT INTO {schema}.things VALUES ('planted')",
    "update": "UPDATE {schema}.things SET secret = 'changed'",
    "delete": "DELETE FROM {schema}.things",
    "truncate": "TRUNCATE {schema}.things",
    "lock": "SELECT * FROM {schema}.things FOR UPDATE",
    "create table": "CREATE TABLE {schema}.planted (x int)",
    "create view": "CREATE VIEW peep AS SELECT * FROM {schema}.things",
    "create function": "CREATE FUNCTION {schema}.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "alter table": "ALTER TABLE {schema}.things ADD COLUMN x int",
    "drop table": "DROP TABLE {schema}.things",
    "drop schema": "DROP SCHEMA {schema} CASCADE",
    "own schema": "ALTER SCHEMA {schema} OWNER TO current_user",
    "grant oneself": "GRANT ALL ON SCHEMA {schema} TO current_user",
    "set role": 'SET ROLE "{role}"',
    "set session authorization": 'SET SESSION AUTHORIZATION "{role}"',
    "join role": 'GRANT "{role}" TO current_user',
    "change password": "ALTER ROLE \"{role}\" PASSWORD 'mine'",
    "own what it owns": 'REASSIGN OWNED BY "{role}" TO current_user',
    "copy out": "COPY {schema}.things TO '/tmp/butlers-stolen'",
    "copy to program": "COPY {schema}.things TO PROGRAM 'cat'",
    "copy from program": "COPY {schema}.things FROM PROGRAM 'echo planted'",
    "end its sessions": "SELECT pg_terminate_backend({pid})",
}
# What no butler may do, to anybody.
EXCESSES = {
    "create in public": "CREATE TABLE public.planted (x int)",
    "create in shared": "CREATE TABLE shared.planted (x int)",
    "write in shared": "INSERT INTO shared.facts VALUES ('planted')",
    "truncate in shared": "TRUNCATE shared.facts",
    "drop in shared": "DROP TABLE shared.facts",
    "create schema": "CREATE SCHEMA planted",
    "create temporary table": "CREATE TEMPORARY TABLE planted (x int)",
    "create role": "CREATE ROLE planted",
    "create database": "CREATE DATABASE planted",
    "become superuser": "ALTER ROLE current_user SUPERUSER",
    "become the administrator": "SET ROLE postgres",
    "session of the administrator": "SET SESSION AUTHORIZATION postgres",
    "passwords": "SELECT rolpassword FROM pg_authid",
    "files": "SELECT pg_read_file('/etc/passwd')",
    "programs": "COPY (SELECT 1) TO PROGRAM 'cat'",
    "settings": "ALTER SYSTEM SET work_mem = '1GB'",
    "extensions in an untrusted language": "CREATE EXTENSION file_fdw",
}


@asynccontextmanager
async def connected(login: Login) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect(login, "tests")
    try:
        yield connection
    finally:
        await connection.close()


def administrator_in(admin: Login, database: str) -> Login:
    return Login(admin.server_dsn, admin.user, admin.password, database)


@pytest.fixture
async def fleet(
    admin: Login, provisioner: Provisioner, database_name: str
) -> AsyncIterator[dict[str, asyncpg.Connection]]:
    """Four butlers in one database, each with a table and a secret in it; their open connections."""
    logins = {
        name: await provisioner.provision(ButlerSchema(name, database_name, name)) for name in FLEET
    }
    async with connected(administrator_in(admin, database_name)) as connection:
        await connection.execute("CREATE TABLE shared.facts (fact text)")
        await connection.execute("INSERT INTO shared.facts VALUES ('for all')")
    connections = {name: await connect(login, name) for name, login in logins.items()}
    for name, connection in connections.items():
        await connection.execute("CREATE TABLE things (secret text)")
        await connection.execute("INSERT INTO things VALUES ($1)", f"of {name}")
    yield connections
    for connection in connections.values():
        await connection.close()


# -- isolation -------------------------------------------------------------------------------------


@pytest.mark.scenario("S001-22")
async def test_each_butler_sees_its_own_and_what_is_shared_and_nothing_else(
    fleet: dict[str, asyncpg.Connection], provisioner: Provisioner, database_name: str
) -> None:
    for name in FLEET:
        login = provisioner.login(ButlerSchema(name, database_name, name))
        settings = login.arguments("tests")["server_settings"]
        assert settings["search_path"] == f"{name},shared,public"
        pool = await Database.open(login, "tests")
        try:
            async with pool.transaction() as connection:
                assert await connection.fetchval("SHOW search_path") == f"{name},shared,public"
                assert await connection.fetchval("SELECT secret FROM things") == f"of {name}"
                assert await connection.fetchval("SELECT fact FROM facts") == "for all"
                visible = await connection.fetch(
                    """
                    SELECT nspname FROM pg_namespace
                    WHERE nspname !~ '^(pg_|information_schema)'
                      AND has_schema_privilege(oid, 'USAGE')
                    """
                )
                assert {row["nspname"] for row in visible} == {name, "shared", "public"}
        finally:
            await pool.close()
    for me, other in permutations(FLEET, 2):
        for what in ("SELECT * FROM {}.things", "INSERT INTO {}.things VALUES ('x')"):
            with pytest.raises(REFUSED):
                await fleet[me].execute(what.format(other))


@pytest.mark.parametrize(("me", "other"), list(permutations(FLEET, 2)))
async def test_a_role_is_refused_on_every_other_schema(
    fleet: dict[str, asyncpg.Connection],
    admin: Login,
    provisioner: Provisioner,
    database_name: str,
    me: str,
    other: str,
) -> None:
    their_pid = fleet[other].get_server_pid()
    for what, statement in TRESPASSES.items():
        text = statement.format(schema=other, role=provisioner.role(other), pid=their_pid)
        try:
            await fleet[me].execute(text)
        except REFUSED:
            continue
        pytest.fail(f"{me} was not refused to {what} of {other}")

    await fleet[me].execute(f"SET search_path TO {other}, {me}")
    assert await fleet[me].fetchval("SELECT secret FROM things") == f"of {me}"
    await fleet[me].execute(f"SET search_path TO {other}")
    with pytest.raises(asyncpg.UndefinedTableError):
        await fleet[me].fetchval("SELECT secret FROM things")

    assert await fleet[other].fetchval("SELECT secret FROM things") == f"of {other}"
    async with connected(administrator_in(admin, database_name)) as connection:
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = $1", other
        )
        assert [row["tablename"] for row in tables] == ["things"]


@pytest.mark.parametrize("me", FLEET)
async def test_a_role_can_do_nothing_outside_its_schema(
    fleet: dict[str, asyncpg.Connection], me: str
) -> None:
    for what, statement in EXCESSES.items():
        try:
            await fleet[me].execute(statement)
        except REFUSED:
            continue
        pytest.fail(f"{me} was not refused: {what}")
    assert await fleet[me].fetchval("SELECT fact FROM shared.facts") == "for all"


async def test_a_role_may_do_everything_in_its_own_schema(
    fleet: dict[str, asyncpg.Connection],
) -> None:
    mine = fleet["health"]
    await mine.execute("CREATE TABLE more (id int PRIMARY KEY, data jsonb)")
    await mine.execute("INSERT INTO more VALUES (1, $1)", {"as": ["python", None]})
    assert await mine.fetchval("SELECT data FROM health.more") == {"as": ["python", None]}
    await mine.execute("ALTER TABLE more ADD COLUMN x int; TRUNCATE more; DROP TABLE more")


async def test_a_butler_with_a_database_of_its_own_is_alone_there(
    provisioner: Provisioner, admin: Login, database_name: str, fleet: dict[str, asyncpg.Connection]
) -> None:
    own = f"{database_name}_own"
    try:
        login = await provisioner.provision(ButlerSchema("hermit", own, None))
        assert login.search_path == ("public", SHARED)
        async with connected(login) as connection:
            await connection.execute("CREATE TABLE things (x int)")
            assert await connection.fetchval("SELECT current_schema()") == "public"
        stranger = provisioner.login(ButlerSchema("health", own, "health"))
        with pytest.raises(REFUSED):
            await connect(stranger, "tests")
        with pytest.raises(REFUSED):
            await connect(Login(login.server_dsn, login.user, login.password, database_name), "t")
    finally:
        async with connected(admin) as connection:
            await connection.execute(f'DROP DATABASE IF EXISTS "{own}" WITH (FORCE)')


async def test_another_password_is_refused(
    fleet: dict[str, asyncpg.Connection], provisioner: Provisioner, database_name: str
) -> None:
    right = provisioner.login(ButlerSchema("health", database_name, "health"))
    theirs = provisioner.login(ButlerSchema("general", database_name, "general")).password
    for password in ("wrong", "", theirs):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await connect(Login(right.server_dsn, right.user, password, database_name), "tests")


async def test_two_installations_on_one_server_are_isolated(
    admin: Login, fleet: dict[str, asyncpg.Connection], database_name: str
) -> None:
    other = Provisioner(admin, FleetKey(secrets.token_bytes(32)))
    with pytest.raises(asyncpg.InvalidPasswordError):
        await connect(other.login(ButlerSchema("health", database_name, "health")), "tests")


# -- making what is missing ------------------------------------------------------------------------


async def test_provisioning_again_changes_nothing(
    fleet: dict[str, asyncpg.Connection], provisioner: Provisioner, database_name: str
) -> None:
    place = ButlerSchema("health", database_name, "health")
    for _ in range(2):
        assert await provisioner.provision(place) == provisioner.login(place)
    assert await fleet["health"].fetchval("SELECT secret FROM things") == "of health"


async def test_six_butlers_at_once_on_a_missing_database(
    provisioner: Provisioner, database_name: str
) -> None:
    names = [f"butler{number}" for number in range(6)]
    logins = await asyncio.gather(
        *(provisioner.provision(ButlerSchema(name, database_name, name)) for name in names)
    )
    for name, login in zip(names, logins, strict=True):
        async with connected(login) as connection:
            assert await connection.fetchval("SELECT current_schema()") == name
            await connection.execute("CREATE TABLE t (x int)")


async def test_one_butler_provisioned_six_times_at_once(
    provisioner: Provisioner, database_name: str
) -> None:
    place = ButlerSchema("same", database_name, "same")
    logins = await asyncio.gather(*(provisioner.provision(place) for _ in range(6)))
    assert set(logins) == {provisioner.login(place)}
    async with connected(logins[0]) as connection:
        await connection.execute("CREATE TABLE t (x int)")


# -- with less than a superuser --------------------------------------------------------------------


@pytest.fixture
async def limited(admin: Login, database_name: str) -> AsyncIterator[Login]:
    """A user that owns a database, and may neither make another one nor (unless granted) roles."""
    name, password = f"limited_{secrets.token_hex(4)}", secrets.token_hex(8)
    async with connected(admin) as connection:
        await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        await connection.execute(f'CREATE DATABASE "{database_name}" OWNER {name}')
        yield Login(admin.server_dsn, name, password, "postgres")
        await connection.execute(f'DROP DATABASE IF EXISTS "{database_name}" WITH (FORCE)')


async def test_without_createrole_the_error_says_what_to_do(
    limited: Login, key: FleetKey, database_name: str
) -> None:
    with pytest.raises(ProvisioningError) as caught:
        await Provisioner(limited, key).provision(ButlerSchema("health", database_name, "health"))
    assert limited.user in caught.value.message
    assert "CREATEROLE" in (caught.value.hint or "")
    assert 'isolation = "none"' in (caught.value.hint or "")


async def test_without_isolation_the_given_user_is_used(
    limited: Login, key: FleetKey, database_name: str
) -> None:
    provisioner = Provisioner(limited, key, isolated=False)
    for _ in range(2):
        for name in ("general", "health"):
            login = await provisioner.provision(ButlerSchema(name, database_name, name))
            async with connected(login) as connection:
                assert await connection.fetchval("SELECT current_user") == limited.user
                assert await connection.fetchval("SELECT current_schema()") == name
                await connection.execute("CREATE TABLE IF NOT EXISTS t (x int)")


async def test_createrole_is_enough_for_isolation(
    limited: Login, admin: Login, key: FleetKey, database_name: str
) -> None:
    async with connected(admin) as connection:
        await connection.execute(f"ALTER ROLE {limited.user} CREATEROLE")
    provisioner = Provisioner(limited, key)
    for _ in range(2):
        for name in ("general", "health"):
            await provisioner.provision(ButlerSchema(name, database_name, name))
    async with connected(
        provisioner.login(ButlerSchema("health", database_name, "health"))
    ) as mine:
        await mine.execute("CREATE TABLE t (x int)")
        with pytest.raises(REFUSED):
            await mine.execute("CREATE TABLE general.t (x int)")
        with pytest.raises(REFUSED):
            await mine.execute(f"SET ROLE {limited.user}")


async def test_unreadable_shared_database_is_an_error(
    limited: Login, admin: Login, key: FleetKey, database_name: str
) -> None:
    """Taken for absent, a butler would start without them and fail at its first work."""
    others = f"{database_name}_shared"
    place = ButlerSchema("health", database_name, "health")
    async with connected(admin) as connection:
        await connection.execute(f'CREATE DATABASE "{others}"')
        await connection.execute(f'REVOKE ALL ON DATABASE "{others}" FROM PUBLIC')
        try:
            with pytest.raises(ProvisioningError, match=others) as caught:
                await Provisioner(limited, key, isolated=False, shared_database=others).provision(
                    place
                )
        finally:
            await connection.execute(f'DROP DATABASE "{others}" WITH (FORCE)')
    assert f"grant {limited.user!r} CONNECT" in (caught.value.hint or "")


async def test_database_that_cannot_be_created_is_named(
    limited: Login, key: FleetKey, database_name: str
) -> None:
    missing = f"{database_name}_missing"
    with pytest.raises(ProvisioningError, match=missing) as caught:
        await Provisioner(limited, key, isolated=False).provision(
            ButlerSchema("health", missing, "health")
        )
    assert "CREATEDB" in (caught.value.hint or "")


# -- through a butler's start ------------------------------------------------------------------------


@pytest.fixture
async def assistant(
    tmp_path: Path, home: Path, admin: Login
) -> AsyncIterator[tuple[Butler, str, list[Butler]]]:
    """A butler whose config names no database: it has the default one, `butler_<name>`."""
    name = f"assistant-{secrets.token_hex(4)}"
    database = f"butler_{name.replace('-', '_')}"
    (tmp_path / "butler.toml").write_text(
        f'[butler]\nname = "{name}"\nport = 0\n[runtime]\ntype = "reflex"\n'
    )
    started: list[Butler] = []
    config = load_butler_config(tmp_path, Settings(home))
    assert config.db.name == database
    yield config, database, started
    for butler in started:
        await butler.stop()
    async with connected(admin) as connection:
        await connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')


async def oid_of(admin: Login, database: str) -> int | None:
    async with connected(admin) as connection:
        found: int | None = await connection.fetchval(
            "SELECT oid FROM pg_database WHERE datname = $1", database
        )
        return found


@pytest.mark.scenario("S002-07")
async def test_the_first_start_creates_the_database(
    assistant: tuple, admin: Login, key: FleetKey, provisioner: Provisioner, home: Path
) -> None:
    config, database, started = assistant
    assert await oid_of(admin, database) is None
    started.append(Butler(config, settings=Settings(home), key=key, provisioner=provisioner))
    with capture_logs() as logs:
        await started[-1].start()
    assert [e["database"] for e in logs if e["event"] == "database created"] == [database]
    assert await oid_of(admin, database) is not None
    async with started[-1].database.transaction() as connection:
        assert await connection.fetchval("SELECT current_database()") == database
    assert isinstance(started[-1].database.pool, asyncpg.Pool)


@pytest.mark.scenario("S002-08")
async def test_a_later_start_uses_the_database_that_is_there(
    assistant: tuple, limited: Login, admin: Login, key: FleetKey, home: Path
) -> None:
    """With an administrator who may not create databases: the attempt alone would end the start."""
    config, database, started = assistant
    async with connected(admin) as connection:
        await connection.execute(f"ALTER ROLE {limited.user} CREATEROLE NOCREATEDB")
        await connection.execute(f'CREATE DATABASE "{database}" OWNER {limited.user}')
    before = await oid_of(admin, database)
    for _ in range(2):
        butler = Butler(
            config, settings=Settings(home), key=key, provisioner=Provisioner(limited, key)
        )
        started.append(butler)
        with capture_logs() as logs:
            await butler.start()
        events = [entry["event"] for entry in logs]
        assert "database found" in events
        assert "database created" not in events
        assert await oid_of(admin, database) == before
        async with butler.database.transaction() as connection:
            assert await connection.fetchval("SELECT current_database()") == database
        assert butler.phase == READY
        await butler.stop()


@pytest.mark.scenario("S002-09")
async def test_missing_server_ends_the_start(assistant: tuple, key: FleetKey, home: Path) -> None:
    config, _, started = assistant
    nobody = Login("postgresql://postgres@127.0.0.1:1/postgres", "postgres", "x", "postgres")
    butler = Butler(config, settings=Settings(home), key=key, provisioner=Provisioner(nobody, key))
    started.append(butler)
    with capture_logs() as logs, pytest.raises(PhaseFailed) as caught:
        await butler.start()
    assert isinstance(caught.value.__cause__, DatabaseUnavailable)
    assert caught.value.phase == butler.phase == "provision database"
    assert "provision database" in str(caught.value)
    assert not any("migration" in entry["event"] for entry in logs)
    assert not any(entry["event"] == "server started" for entry in logs)
    assert not hasattr(butler, "database")
    await assert_not_served(butler)
