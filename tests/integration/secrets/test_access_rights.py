"""The shared schema: every butler reads it by its search path, and of the secrets only its own and all's."""

from __future__ import annotations

import asyncpg
import pytest

from butlers.db.database import Database
from butlers.db.migrations import shared_chain
from butlers.domain.redaction import SecretText
from butlers.secrets.credentials import CredentialStore
from butlers.secrets.sealed import NewSecret
from integration.secrets.conftest import Installation

BUTLERS = ("health", "general", "solo")
WRITES = {
    "insert": "INSERT INTO shared.secrets (scope, name, nonce, ciphertext, key_id)"
    " VALUES ('{own}', 'PLANTED', '', '', '')",
    "update": "UPDATE shared.secrets SET ciphertext = ''",
    "delete": "DELETE FROM shared.secrets",
    "truncate": "TRUNCATE shared.secrets",
    "lock": "SELECT * FROM shared.secrets FOR UPDATE",
    "no walls": "ALTER TABLE shared.secrets DISABLE ROW LEVEL SECURITY",
    "own policy": "CREATE POLICY mine ON shared.secrets USING (true)",
    "drop policy": 'DROP POLICY "{role}" ON shared.secrets',
    "trigger": "CREATE TRIGGER t BEFORE UPDATE ON shared.secrets FOR EACH ROW"
    " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "drop": "DROP TABLE shared.secrets",
    "new table": "CREATE TABLE shared.mine (x int)",
    "grant": "GRANT DELETE ON shared.secrets TO current_user; DELETE FROM shared.secrets",
    "version": "UPDATE shared.alembic_version_shared SET version_num = 'x'",
}


@pytest.fixture
async def filled(installation: Installation) -> Installation:
    scopes = ("shared", *BUTLERS)
    await installation.vault.put(
        [NewSecret(scope, "KEY", SecretText(f"of-{scope}")) for scope in scopes]
    )
    return installation


@pytest.mark.scenario("S001-23")
async def test_shared_data_is_read_by_all_and_written_by_the_credential_store_alone(
    filled: Installation,
) -> None:
    """THEN it lives in `shared`; AND all butlers read it via their search_path; AND writing is governed
    by the credential store and by migrations."""
    for butler in BUTLERS:
        async with filled.as_role(butler) as connection:
            assert "shared" in str(await connection.fetchval("SHOW search_path"))
            where = await connection.fetchval("SELECT 'secrets'::regclass::oid::regclass::text")
            assert where == "secrets"  # found without naming the schema, ...
            assert await connection.fetchval(
                "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'secrets'::regclass"
            ) == ("shared")  # ... in `shared`
            rows = await connection.fetch("SELECT scope FROM secrets ORDER BY scope")
            assert [row["scope"] for row in rows] == sorted([butler, "shared"])
            # Tables come by the chain that the administrator applies, and a role writes in none.
            version = await connection.fetchval("SELECT version_num FROM alembic_version_shared")
            assert version == shared_chain().head()
            for table in await connection.fetch(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'shared'"
            ):
                for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER", "REFERENCES"):
                    assert not await connection.fetchval(
                        "SELECT has_table_privilege($1, $2)", f"shared.{table[0]}", right
                    )
            assert not await connection.fetchval("SELECT has_schema_privilege('shared', 'CREATE')")
    # The credential store writes, when it is the owner's.
    login = await filled.provisioner.provision_shared(filled.logins["health"].database)
    database = await Database.open(login, "tests", size=1)
    try:
        owner = CredentialStore(database, filled.key, butler="health", environ={})
        await owner.set("KEY", "written", scope="shared")
        await owner.set("OWN", "written")
        assert await owner.delete("KEY")
        assert not await owner.delete("KEY")
    finally:
        await database.close()
    reader = await filled.store("health")
    assert await reader.resolve("KEY") == "written"
    assert await reader.resolve("OWN") == "written"
    assert await (await filled.store("general")).resolve("OWN") is None


@pytest.mark.parametrize("butler", BUTLERS)
async def test_a_role_changes_nothing_in_shared(filled: Installation, butler: str) -> None:
    allowed = []
    async with filled.as_role(butler) as connection:
        for what, statement in WRITES.items():
            try:
                await connection.execute(
                    statement.format(own=butler, role=filled.logins[butler].user)
                )
            except asyncpg.InsufficientPrivilegeError:
                continue
            allowed.append(what)
    assert allowed == []
    assert len(await filled.vault.entries()) == 4


@pytest.mark.parametrize("butler", ["health", "general"])
async def test_row_security_cannot_be_bypassed(filled: Installation, butler: str) -> None:
    other = {"health": "general", "general": "health"}[butler]
    async with filled.as_role(butler) as connection:
        for sql in (
            "SELECT scope FROM shared.secrets WHERE scope = $1",
            "SELECT scope FROM shared.secrets WHERE scope = $1 OR true AND scope = $1",
            "SELECT scope FROM (TABLE shared.secrets) t WHERE scope = $1",
            "SELECT most_common_vals::text FROM pg_stats WHERE tablename = 'secrets'"
            " AND most_common_vals::text LIKE '%' || $1 || '%'",
        ):
            assert await connection.fetch(sql, other) == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("SET row_security = off; TABLE shared.secrets")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f'SET ROLE "{filled.logins[other].user}"')
        # An operator of its own, cheap enough to run before the policy, sees no foreign row either.
        await connection.execute(
            f"""
            CREATE FUNCTION {butler}.peep(text) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS
            $$BEGIN IF $1 NOT IN ('shared', '{butler}') THEN RAISE 'seen %', $1; END IF;
            RETURN true; END$$
            """
        )
        seen = await connection.fetch(f"SELECT scope FROM secrets WHERE {butler}.peep(scope)")
        assert {row["scope"] for row in seen} == {"shared", butler}


async def test_a_role_of_another_installation_sees_nothing(filled: Installation) -> None:
    """Without a policy there are no rows, whatever was granted."""
    async with filled.as_admin() as connection, connection.transaction():
        await connection.execute("CREATE ROLE stranger_of_test")
        await connection.execute("GRANT USAGE ON SCHEMA shared TO stranger_of_test")
        await connection.execute("GRANT SELECT ON shared.secrets TO stranger_of_test")
        await connection.execute("SET LOCAL ROLE stranger_of_test")
        assert await connection.fetch("SELECT 1 FROM shared.secrets") == []
        await connection.execute("RESET ROLE")
        await connection.execute("DROP OWNED BY stranger_of_test")
        await connection.execute("DROP ROLE stranger_of_test")


async def test_without_isolation_the_store_keeps_to_its_scopes(filled: Installation) -> None:
    login = await filled.provisioner.provision_shared(filled.logins["health"].database)
    database = await Database.open(login, "tests", size=1)
    try:
        store = CredentialStore(database, filled.key, butler="health", environ={})
        assert await store.resolve("KEY") == "of-health"
        assert {entry.scope for entry in await store.list()} == {"shared", "health"}
    finally:
        await database.close()
