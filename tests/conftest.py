"""Real parts for every test: one PostgreSQL server per run, a database of its own per test."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import hypothesis
import pytest
import structlog

from butlers.db.database import Database, Login
from butlers.db.embedded import EmbeddedPostgres
from butlers.db.migrations import butler_chains, migrate, shipped_versions
from butlers.db.provision import ButlerSchema, Provisioner
from butlers.domain.redaction import redactor
from butlers.wire.tokens import FleetKey
from support.fleet import Fleet, butlers_environment
from support.forked import run_butlers
from support.properties import SEED_PROPERTY, register_profiles

register_profiles()


def pytest_configure(config: pytest.Config) -> None:
    # As the daemon does it. The pretty tracebacks, with all their locals, take a second each.
    *others, _renderer = structlog.get_config()["processors"]
    plain = structlog.dev.plain_traceback
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)
    structlog.configure(processors=[*others, renderer])
    config.addinivalue_line("markers", "soak: takes many minutes; run by make soak")
    if not config.getoption("--hypothesis-profile", None):
        hypothesis.settings.load_profile("ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long runs unless they are asked for by their marker, and begin with the longest tests: at
    the end they would keep one worker busy and the others not."""
    if not config.getoption("markexpr"):
        long = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More than there are processors: most tests wait half of their time for another process."""
    return 2 * (os.cpu_count() or 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With what a storm can be repeated, also where it went well and nothing of its output is shown."""
    ended = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    told = (said for report in ended for said in report.user_properties)
    for seed in sorted({value for name, value in told if name == SEED_PROPERTY}):
        terminalreporter.write_line(f"repeat the storm with: {seed}")


@pytest.fixture(scope="session")
def run_id(request: pytest.FixtureRequest) -> str:
    """The same for every worker of one run."""
    worker = getattr(request.config, "workerinput", None)
    return str(worker["testrunuid"])[:12] if worker else secrets.token_hex(6)


@pytest.fixture(scope="session")
def postgres(run_id: str) -> Iterator[EmbeddedPostgres]:
    """One server for all workers of the run; the last of them stops it."""
    home = Path(tempfile.gettempdir()) / f"butlers-test-{run_id}"
    server = EmbeddedPostgres(home, durable=False)
    server.acquire()
    yield server
    server.release()
    if not server.is_running():
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def admin(postgres: EmbeddedPostgres) -> Login:
    return Login(postgres.dsn(), "postgres", None, "postgres")


@pytest.fixture(scope="session")
def session_key() -> FleetKey:
    return FleetKey(secrets.token_bytes(32))


@pytest.fixture
def key() -> FleetKey:
    """Key of a separate installation, with its own roles and passwords."""
    return FleetKey(secrets.token_bytes(32))


@pytest.fixture
def provisioner(admin: Login, key: FleetKey, database_name: str) -> Provisioner:
    """Provisioner that puts the shared tables into the test's own database, out of sight of other tests."""
    return Provisioner(admin, key, shared_database=database_name)


@pytest.fixture(scope="session")
def template(admin: Login, session_key: FleetKey) -> Login:
    """A database with the core tables, copied for each test that wants one."""
    place = ButlerSchema("tester", f"template_{secrets.token_hex(4)}", None)

    async def prepare() -> Login:
        login = await Provisioner(admin, session_key).provision(place)
        await migrate(login, butler_chains("tester", shipped_versions()))
        return login

    return asyncio.run(prepare())


@pytest.fixture
async def login(admin: Login, template: Login) -> AsyncIterator[Login]:
    """A fresh database with the core tables, reached by a butler's own role."""
    name = f"test_{secrets.token_hex(6)}"
    connection = await asyncpg.connect(**admin.arguments("tests"))
    try:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template.database}"')
        await connection.execute(f'GRANT CONNECT ON DATABASE "{name}" TO "{template.user}"')
        yield Login(
            template.server_dsn, template.user, template.password, name, template.search_path
        )
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await connection.close()


@pytest.fixture
async def database(login: Login) -> AsyncIterator[Database]:
    opened = await Database.open(login, "tests")
    yield opened
    await opened.close()


@pytest.fixture
async def database_name(admin: Login) -> AsyncIterator[str]:
    """The name of a database that is not there yet, and is gone after the test."""
    name = f"test_{secrets.token_hex(6)}"
    yield name
    connection = await asyncpg.connect(**admin.arguments("tests"))
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    finally:
        await connection.close()


@pytest.fixture(autouse=True)
def forget_planted_secrets() -> Iterator[None]:
    """A secret that one test plants must not be masked in the next one's texts."""
    known = redactor._values, redactor._forms
    yield
    redactor._values, redactor._forms = known


@pytest.fixture
def home() -> Iterator[Path]:
    """A BUTLERS_HOME with a short path, so that its socket fits."""
    path = Path(tempfile.mkdtemp(prefix="bh-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def template_home(run_id: str) -> Iterator[Path]:
    """A migrated home, made by the first worker that needs it and removed by the last."""
    root = Path(tempfile.gettempdir()) / f"bt-{run_id}"
    locks = Path(tempfile.gettempdir()) / "butlers-test-slots"
    locks.mkdir(exist_ok=True)
    with open(locks / f"{run_id}.making", "a") as making, open(locks / run_id, "a") as using:
        fcntl.flock(making, fcntl.LOCK_EX)
        fcntl.flock(using, fcntl.LOCK_SH)
        root.mkdir(exist_ok=True)
        if not (root / "made").exists():
            env = butlers_environment(root / "home", 0)
            done = run_butlers("db", "migrate", env=env, cwd=root)
            assert done.returncode == 0, done.stderr
            (root / "made").touch()
        fcntl.flock(making, fcntl.LOCK_UN)
        yield root / "home"
        fcntl.flock(making, fcntl.LOCK_EX)
        fcntl.flock(using, fcntl.LOCK_UN)
        try:
            fcntl.flock(using, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another worker still uses it
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def fleet(template_home: Path) -> Iterator[Fleet]:
    """The four butlers as separate processes, shared by the tests of one file."""
    running = Fleet.copy_of(template_home)
    try:
        running.start_all()
        yield running
    finally:
        running.close()
