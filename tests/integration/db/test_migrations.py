"""Migration chains through a butler's start and by themselves, on a real database."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from butlers.daemon.butler import READY, Butler
from butlers.db.database import Login, connect
from butlers.db.migrations import (
    Chain,
    butler_chains,
    find_chain,
    migrate,
    pending_chains,
    shipped_versions,
)
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.domain.errors import MigrationFailed, PhaseFailed
from butlers.wire.tokens import FleetKey
from support.not_served import assert_not_served

MakeBareButler = Callable[..., Butler]
SOURCES = Path(__file__).resolve().parents[3] / "src"


def revisions_of(chain: str) -> list[str]:
    """Return the shipped revisions of a chain in their order."""
    files = sorted((shipped_versions() / chain).glob("*.py"))
    return ["_".join(path.stem.split("_")[:2]) for path in files]


# What ships grows with every issue; these tests only need to know where it ends.
CORE = revisions_of("core")
HEAD = CORE[-1]

REVISION = """
from alembic import op

revision = "{revision}"
down_revision = {down!r}


def upgrade() -> None:
    {body}
"""


def write_revision(
    versions: Path, chain: str, revision: str, down: str | None, *statements: str
) -> Path:
    folder = versions / chain
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{revision}.py"
    body = "\n    ".join(f"op.execute({statement!r})" for statement in statements)
    path.write_text(REVISION.format(revision=revision, down=down, body=body))
    return path


async def fetch(login: Login, sql: str, *arguments: object) -> list[tuple]:
    connection = await connect(login, "tests")
    try:
        return [tuple(row) for row in await connection.fetch(sql, *arguments)]
    finally:
        await connection.close()


async def tables(login: Login) -> set[str]:
    found = await fetch(
        login, "SELECT tablename FROM pg_tables WHERE schemaname = $1", login.schema
    )
    return {name for (name,) in found}


async def recorded(login: Login, table: str = "alembic_version") -> list[str]:
    return [row[0] for row in await fetch(login, f'SELECT version_num FROM "{table}"')]


def applied(logs: list[dict]) -> list[tuple[str, str]]:
    """A butler's own; the chain of what all share is the administrator's, while provisioning."""
    found = [(e["chain"], e["revision"]) for e in logs if e["event"] == "migration applied"]
    return [(chain, revision) for chain, revision in found if chain != "shared"]


CORE_APPLIED = [("core", revision) for revision in CORE]


# -- core ------------------------------------------------------------------------------------------


@pytest.mark.scenario("S002-10")
async def test_the_first_start_makes_the_core_tables(
    make_bare_butler: MakeBareButler, provisioner: Provisioner, database_name: str
) -> None:
    login = await provisioner.provision(ButlerSchema("minimal", database_name, None))
    assert await tables(login) == set()
    butler = make_bare_butler("minimal")
    with capture_logs() as logs:
        await butler.start()
    assert butler.database.login == login
    assert applied(logs) == CORE_APPLIED
    assert {"state", "scheduled_tasks", "sessions", "alembic_version"} <= await tables(login)
    assert await recorded(login) == [HEAD]


@pytest.mark.scenario("S002-11")
async def test_only_new_revisions_are_applied(
    make_bare_butler: MakeBareButler, versions: Path
) -> None:
    first = make_bare_butler("minimal", versions=versions)
    await first.start()
    login = first.database.login
    async with first.database.transaction() as connection:
        await connection.execute("INSERT INTO state (key, value) VALUES ('kept', '1')")
    before = await fetch(login, "SELECT 'state'::regclass::oid")
    await first.stop()

    again = make_bare_butler("minimal", versions=versions)
    with capture_logs() as logs:
        await again.start()
    assert applied(logs) == []
    assert [e for e in logs if e["event"] == "migrations up to date"]
    await again.stop()

    write_revision(versions, "core", "core_next", HEAD, "CREATE TABLE newer (x int)")
    newer = make_bare_butler("minimal", versions=versions)
    with capture_logs() as logs:
        await newer.start()
    assert applied(logs) == [("core", "core_next")]
    assert "newer" in await tables(login)
    assert await recorded(login) == ["core_next"]
    assert await fetch(login, "SELECT 'state'::regclass::oid") == before
    assert await fetch(login, "SELECT key FROM state") == [("kept",)]


BROKEN = {
    "not Python": "def upgrade(:",
    "fails when imported": f"revision = 'core_next'\ndown_revision = '{HEAD}'\nimport no_such_thing",
    "an unknown name": REVISION.format(
        revision="core_next",
        down=HEAD,
        body="op.execute('CREATE TABLE half (x int)'); nobody_knows_me()",
    ),
    "not SQL": REVISION.format(
        revision="core_next",
        down=HEAD,
        body="op.execute('CREATE TABLE half (x int)'); op.execute('CREATE TABLE other (')",
    ),
    "fails when run": REVISION.format(
        revision="core_next",
        down=HEAD,
        body="op.execute('CREATE TABLE half (x int)'); op.execute('SELECT 1 / 0')",
    ),
    "no such file": REVISION.format(
        revision="core_next",
        down=HEAD,
        body="op.execute('CREATE TABLE half (x int)'); open('/no/such/file')",
    ),
}


@pytest.mark.scenario("S002-12")
@pytest.mark.parametrize("fresh", [True, False], ids=["on an empty database", "on a migrated one"])
@pytest.mark.parametrize("how", BROKEN)
async def test_a_failing_migration_ends_the_start_and_leaves_nothing(
    make_bare_butler: MakeBareButler,
    versions: Path,
    provisioner: Provisioner,
    database_name: str,
    how: str,
    fresh: bool,
) -> None:
    """Modules are imported and checked before the database is touched; wiring
    them into a server comes after, and that is what is not reached."""
    login = await provisioner.provision(ButlerSchema("minimal", database_name, None))
    if not fresh:
        await migrate(login, butler_chains("minimal", versions))
    before = await tables(login)
    header = (
        "" if "revision" in BROKEN[how] else f"revision = 'core_next'\ndown_revision = '{HEAD}'\n"
    )
    (versions / "core" / "core_next.py").write_text(header + BROKEN[how])

    butler = make_bare_butler("minimal", versions=versions)
    with pytest.raises(PhaseFailed) as caught:
        await butler.start()
    assert caught.value.phase == butler.phase == "apply core migrations"
    assert isinstance(caught.value.__cause__, MigrationFailed)
    assert "'core'" in str(caught.value)
    assert str(versions / "core") in (caught.value.hint or "")
    await assert_not_served(butler)
    assert await tables(login) == before
    if not fresh:
        assert await recorded(login) == [HEAD]

    (versions / "core" / "core_next.py").unlink()
    mended = make_bare_butler("minimal", versions=versions)
    await mended.start()
    assert await recorded(login) == [HEAD]


# -- a butler's own chain --------------------------------------------------------------------------


@pytest.mark.scenario("S002-13")
async def test_a_butlers_own_chain_comes_after_core(
    make_bare_butler: MakeBareButler, versions: Path
) -> None:
    # It refers to a core table, so in another order it would fail.
    write_revision(
        versions,
        "relationship",
        "relationship_001",
        None,
        "CREATE TABLE contacts (id uuid PRIMARY KEY, met_in uuid REFERENCES sessions)",
    )
    write_revision(
        versions,
        "relationship",
        "relationship_002",
        "relationship_001",
        "ALTER TABLE contacts ADD COLUMN name text",
    )
    butler = make_bare_butler("relationship", versions=versions)
    with capture_logs() as logs:
        await butler.start()
    assert butler.phase == READY
    assert applied(logs) == [
        *CORE_APPLIED,
        ("relationship", "relationship_001"),
        ("relationship", "relationship_002"),
    ]
    login = butler.database.login
    assert {"state", "contacts"} <= await tables(login)
    assert await recorded(login) == [HEAD]
    assert await recorded(login, "alembic_version_relationship") == ["relationship_002"]


@pytest.mark.scenario("S002-14")
async def test_a_butler_without_a_chain_has_the_core_tables(
    make_bare_butler: MakeBareButler, versions: Path
) -> None:
    assert not (versions / "minimal").exists()
    assert not (shipped_versions() / "minimal").exists()
    butler = make_bare_butler("minimal", versions=versions)
    with capture_logs() as logs:
        await butler.start()
    assert butler.phase == READY
    assert applied(logs) == CORE_APPLIED
    found = await tables(butler.database.login)
    assert {"state", "scheduled_tasks", "sessions"} <= found
    assert {name for name in found if name.startswith("alembic")} == {"alembic_version"}


async def test_a_failing_chain_of_a_butler_keeps_the_core(
    make_bare_butler: MakeBareButler, versions: Path, provisioner: Provisioner, database_name: str
) -> None:
    write_revision(versions, "minimal", "minimal_001", None, "CREATE TABLE t (x int)", "nonsense")
    butler = make_bare_butler("minimal", versions=versions)
    with pytest.raises(PhaseFailed, match="'minimal' failed"):
        await butler.start()
    assert butler.phase == "apply butler migrations"
    await assert_not_served(butler)
    login = provisioner.login(ButlerSchema("minimal", database_name, None))
    assert await recorded(login) == [HEAD]
    assert "t" not in await tables(login)


# -- chains are strangers to each other ------------------------------------------------------------


@pytest.fixture
async def login_in_schema(provisioner: Provisioner, database_name: str) -> Login:
    return await provisioner.provision(ButlerSchema("general", database_name, "general"))


async def test_each_chain_has_its_version_table_in_the_butlers_schema(
    login_in_schema: Login,
) -> None:
    chains = butler_chains("general", shipped_versions())
    assert [chain.name for chain in chains] == ["core", "general"]
    await migrate(login_in_schema, chains)
    found = {name for name in await tables(login_in_schema) if name.startswith("alembic")}
    assert found == {"alembic_version", "alembic_version_general"}
    assert await pending_chains(login_in_schema, chains) == []
    elsewhere = await fetch(
        login_in_schema,
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    )
    assert elsewhere == []


async def test_two_butlers_of_one_database_migrate_apart(
    provisioner: Provisioner, database_name: str
) -> None:
    general = await provisioner.provision(ButlerSchema("general", database_name, "general"))
    health = await provisioner.provision(ButlerSchema("health", database_name, "health"))
    await migrate(general, butler_chains("general", shipped_versions()))
    assert await tables(health) == set()
    await migrate(health, butler_chains("health", shipped_versions()))
    assert "measurements" in await tables(health)
    assert "measurements" not in await tables(general)


async def test_a_chain_that_was_removed_leaves_the_others_working(
    login_in_schema: Login, versions: Path
) -> None:
    write_revision(versions, "general", "general_001", None, "CREATE TABLE mine (x int)")
    await migrate(login_in_schema, butler_chains("general", versions))
    shutil.rmtree(versions / "general")
    write_revision(versions, "core", "core_next", HEAD, "CREATE TABLE newer (x int)")
    chains = butler_chains("general", versions)
    assert [chain.name for chain in chains] == ["core"]
    assert await migrate(login_in_schema, chains) == ["core_next"]
    assert {"mine", "newer"} <= await tables(login_in_schema)
    write_revision(versions, "general", "general_001", None, "CREATE TABLE mine (x int)")
    assert await migrate(login_in_schema, butler_chains("general", versions)) == []


async def test_another_programs_version_table_does_not_confuse_ours(
    admin: Login, login_in_schema: Login, versions: Path
) -> None:
    """In a database that the owner lent us, `public` may have an alembic_version already."""
    lent = Login(admin.server_dsn, admin.user, admin.password, login_in_schema.database)
    connection = await connect(lent, "tests")
    await connection.execute("CREATE TABLE public.alembic_version (version_num text)")
    await connection.execute(f"INSERT INTO public.alembic_version VALUES ('{HEAD}')")
    await connection.close()
    chains = butler_chains("minimal", versions)
    assert await pending_chains(login_in_schema, chains) == chains
    assert await migrate(login_in_schema, chains) == CORE
    assert "state" in await tables(login_in_schema)
    assert await fetch(lent, "SELECT * FROM public.alembic_version") == [(HEAD,)]


async def test_chain_path_may_contain_special_characters(
    login_in_schema: Login, tmp_path: Path
) -> None:
    folder = tmp_path / "100% mine, und ü [x]"
    write_revision(folder, "odd", "odd_001", None, "CREATE TABLE odd (x int)")
    assert await migrate(login_in_schema, [Chain("odd", folder / "odd")]) == ["odd_001"]


# -- mistakes --------------------------------------------------------------------------------------


async def test_several_heads_are_reported(make_bare_butler: MakeBareButler, versions: Path) -> None:
    write_revision(versions, "core", "core_next_a", HEAD, "SELECT 1")
    write_revision(versions, "core", "core_next_b", HEAD, "SELECT 1")
    butler = make_bare_butler("minimal", versions=versions)
    with pytest.raises(PhaseFailed) as caught:
        await butler.start()
    assert "several heads: core_next_a, core_next_b" in str(caught.value)
    assert "down_revision" in (caught.value.hint or "")
    await assert_not_served(butler)


async def test_a_database_of_a_newer_program_is_not_touched(
    login_in_schema: Login, versions: Path
) -> None:
    newer = write_revision(versions, "core", "core_next", HEAD, "CREATE TABLE newer (x int)")
    await migrate(login_in_schema, butler_chains("minimal", versions))
    newer.unlink()
    with pytest.raises(MigrationFailed, match="core_next"):
        await migrate(login_in_schema, butler_chains("minimal", versions))
    assert await recorded(login_in_schema) == ["core_next"]


@pytest.mark.parametrize(
    ("line", "head"),
    [
        ('revision = "a_001"\ndown_revision = None', "a_001"),
        ("revision: str = 'a_001'\ndown_revision: str | None = None", "a_001"),
        (
            'revision: str = "a_001"\ndown_revision: Union[str, Sequence[str], None] = "a_000"',
            "a_001",
        ),
        ("# no revision at all", None),
    ],
)
def test_the_head_is_read_without_alembic(tmp_path: Path, line: str, head: str | None) -> None:
    (tmp_path / "a.py").write_text(f'"""About it."""\n\n{line}\n')
    assert Chain("a", tmp_path).head() == head


def test_every_shipped_chain_has_one_head() -> None:
    for folder in shipped_versions().iterdir():
        if folder.name != "__pycache__":
            chain = find_chain(folder.name, shipped_versions())
            assert chain
            assert chain.head()


# -- several at once, and nothing to do ------------------------------------------------------------


async def test_several_tasks_migrate_one_fresh_schema_at_once(login_in_schema: Login) -> None:
    chains = butler_chains("general", shipped_versions())
    done = await asyncio.gather(*(migrate(login_in_schema, chains) for _ in range(4)))
    assert sorted(revision for revisions in done for revision in revisions) == [
        *CORE,
        *revisions_of("general"),
    ]
    assert await pending_chains(login_in_schema, chains) == []


def test_upgrades_run_in_any_event_loop(provisioner: Provisioner, database_name: str) -> None:
    async def migrate_two(*names: str) -> None:
        for name in names:
            await provisioner.provision(ButlerSchema(name, database_name, name))
        await asyncio.gather(
            *(
                migrate(
                    provisioner.login(ButlerSchema(name, database_name, name)),
                    butler_chains(name, shipped_versions()),
                )
                for name in names
            )
        )

    asyncio.run(migrate_two("one", "two"))
    asyncio.run(migrate_two("three", "four"))


MIGRATE = """
import asyncio, json, sys
from pathlib import Path
from butlers.db.database import Login
from butlers.db.migrations import butler_chains, migrate, shipped_versions
told = json.load(sys.stdin)
login = Login(told["dsn"], told["user"], told["password"], told["database"], ("general", "shared"))
print("ready", flush=True)
asyncio.run(migrate(login, butler_chains("general", shipped_versions())))
"""


def python(script: str, **told: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCES)},
        text=True,
    )
    assert process.stdin
    process.stdin.write(json.dumps(told))
    process.stdin.close()
    process.stdin = None
    return process


async def test_several_processes_migrate_one_fresh_schema_at_once(login_in_schema: Login) -> None:
    login = login_in_schema
    told = {"dsn": login.server_dsn, "user": login.user, "database": login.database}
    processes = [python(MIGRATE, **told, password=login.password or "") for _ in range(3)]
    for process in processes:
        _, complaints = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, complaints
    assert await pending_chains(login, butler_chains("general", shipped_versions())) == []


START = """
import asyncio, json, sys
from pathlib import Path
from butlers.config.butler import load_butler_config
from butlers.config.settings import Settings
from butlers.daemon.butler import Butler
from butlers.db.database import Login
from butlers.db.provision import Provisioner
from butlers.wire.tokens import FleetKey

told = json.load(sys.stdin)
key = FleetKey(bytes.fromhex(told["key"]))
admin = Login(told["dsn"], "postgres", None, "postgres")
home = Path(told["home"])

async def main():
    config = load_butler_config(Path(told["folder"]), Settings(home))
    butler = Butler(config, settings=Settings(home), key=key, provisioner=Provisioner(admin, key))
    await butler.start()
    seen = {"phase": butler.phase, "heavy": sorted({"alembic", "sqlalchemy"} & set(sys.modules))}
    await butler.stop()
    print("SEEN" + json.dumps(seen))

asyncio.run(main())
"""


async def test_a_daemon_with_nothing_to_migrate_never_imports_alembic(
    make_bare_butler: MakeBareButler, admin: Login, key: FleetKey, home: Path
) -> None:
    butler = make_bare_butler("general", schema="general")
    told = {
        "dsn": admin.server_dsn,
        "key": key.secret.hex(),
        "home": str(home),
        "folder": str(butler.config.directory),
    }

    async def start() -> dict:
        process = python(START, **told)
        said, complaints = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, complaints
        return json.loads(said.rpartition("SEEN")[2])

    # The first start has to migrate, which shows that the second one's silence means something.
    assert await start() == {"phase": READY, "heavy": ["alembic", "sqlalchemy"]}
    assert await start() == {"phase": READY, "heavy": []}
