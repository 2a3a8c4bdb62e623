"""The server of a home: started by the first lease, restarted by any, stopped by the last."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

import psutil
import structlog

from butlers.config.files import exclusive_lock
from butlers.db.embedded.cluster import Cluster
from butlers.db.embedded.postmaster import (
    SOCKET_NAME,
    Postmaster,
    ServerLease,
    choose_socket_dir,
    find_postmaster,
    make_private,
    open_lock,
    reap,
    remnants,
    serves,
    try_exclusive,
    written_pid,
)
from butlers.db.embedded.programs import STANDARD_PATH, Account, choose_account, find_binaries
from butlers.domain.errors import ButlersError, DatabaseUnavailable

_SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "400",  # enough for 64 butlers; each takes 35 kB of memory, also unused
    "shared_buffers": "64MB",
    "autovacuum_naptime": "10s",  # a claim reads over the dead rows of earlier claims
    "maintenance_work_mem": "64MB",
    "max_wal_size": "512MB",
    "jit": "off",  # slower for short statements
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}
_TESTS_ONLY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
_LOG_LIMIT = 10_000_000
_FAST_STOP_SECONDS, _IMMEDIATE_STOP_SECONDS = 60.0, 15.0
_REMNANT_SECONDS = 1.0
_POLL_SECONDS = 0.01

log = structlog.get_logger()


class EmbeddedPostgres:
    """This process's lease of the server of a home. The methods block: run them in a thread.

    The processes coordinate by three locks under ``<home>/postgres``, which the kernel drops when a
    holder dies: ``start.lock`` lets one process at a time start or stop the server, ``clients.lock`` is
    shared by all processes that use the server, and ``server.lock`` is held by the server's own
    processes, so that two servers never open the same data.
    """

    def __init__(
        self,
        home: Path,
        *,
        runtime_dir: Path | None = None,
        temp_dir: Path = Path("/tmp"),
        binaries: Path | None = None,
        search_path: str = STANDARD_PATH,
        durable: bool = True,
        start_timeout: float = 300.0,
    ) -> None:
        # Resolved, because the server is recognized by its working folder.
        self._root = home.resolve() / "postgres"
        self._binaries = binaries or find_binaries(search_path=search_path)
        self._cluster = Cluster(self._root, self._binaries)
        self._socket_dir = choose_socket_dir(self._root, runtime_dir, temp_dir)
        self._search_path = search_path
        self._durable = durable
        self._start_timeout = start_timeout
        self._lease: ServerLease | None = None

    # -- the lease -----------------------------------------------------------------------------

    def acquire(self) -> None:
        """Take a lease; start the server, and create the database, if needed."""
        with self._database_errors():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with exclusive_lock(self._root / "start.lock") as start_lock:
                self._lease = self._lease or ServerLease(self._root / "clients.lock")
                try:
                    self._bring_up(start_lock)
                except BaseException:
                    self._release_lease()
                    raise

    def release(self) -> None:
        """Release the lease, if any; the last lease stops the server."""
        if self._lease is None:
            return
        with self._database_errors(), exclusive_lock(self._root / "start.lock"):
            self._release_lease()

    def ensure_running(self) -> bool:
        """Restart a dead server and return whether it was dead. Without a lease, do nothing."""
        with self._database_errors(), exclusive_lock(self._root / "start.lock") as start_lock:
            return self._lease is not None and self._bring_up(start_lock, may_create=False)

    def is_running(self) -> bool:
        """Return whether the server runs and accepts connections."""
        with self._database_errors():
            postmaster = find_postmaster(self._cluster.data)
            return postmaster is not None and postmaster.ready

    def dsn(
        self, database: str = "postgres", user: str = "postgres", password: str | None = None
    ) -> str:
        """Return the URL for asyncpg, by default with the superuser's password."""
        with self._database_errors():
            if password is None and user == "postgres":
                password = self._cluster.password()
            login = quote(user, safe="")
            if password is not None:
                login += ":" + quote(password, safe="")
            # The port is explicit: drivers would otherwise read PGPORT from the environment.
            where = urlencode({"host": str(self.socket_dir), "port": 5432}, quote_via=quote)
            return f"postgresql://{login}@/{quote(database, safe='')}?{where}"

    @property
    def socket_dir(self) -> Path:
        """Socket folder of the running server, or else the folder that this process would choose."""
        postmaster = find_postmaster(self._cluster.data)
        return (postmaster and postmaster.socket_dir) or self._socket_dir

    @property
    def pid(self) -> int | None:
        """Process id of the running server, or None."""
        postmaster = find_postmaster(self._cluster.data)
        return postmaster.pid if postmaster else None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    # -- starting; the start lock is held ------------------------------------------------------

    def _bring_up(self, start_lock: int, *, may_create: bool = True) -> bool:
        server_lock = open_lock(self._root / "server.lock")
        try:
            if self._is_served(server_lock):
                return False
            self._launch(start_lock, server_lock, may_create)
            return True
        finally:
            # Closed, not unlocked: the server holds the same lock through its own descriptor.
            os.close(server_lock)

    def _launch(self, start_lock: int, server_lock: int, may_create: bool) -> None:
        present = self._cluster.check()
        if not present and not may_create:
            # Never replace lost data by an empty database.
            raise DatabaseUnavailable(
                f"the data folder {self._cluster.data} is missing",
                hint="restore it, or restart Butlers",
            )
        self._open_log()
        account = choose_account(self._binaries / "postgres", self._root, self._search_path)
        make_private(self._socket_dir, also_allowed=account.uid)
        account.adopt(self._socket_dir)
        if not present:
            self._make_cluster(account, start_lock)
        self._remove_stale_files()
        self._start(account, server_lock)

    def _is_served(self, server_lock: int) -> bool:
        """Return whether a server is ready; if not, this process holds the server lock."""
        while not self._settled():
            # A server whose starter was killed can hold the lock before it writes its pid file.
            if not _wait_until(
                lambda: self._no_server_runs(server_lock) or self.pid is not None, _REMNANT_SECONDS
            ):
                self._end_remnants(server_lock)
            elif self.pid is None:
                return False
        return True

    def _settled(self) -> bool:
        """Return whether a server is ready, waiting for one that is starting or stopping."""
        deadline = time.monotonic() + self._start_timeout
        while (postmaster := find_postmaster(self._cluster.data)) is not None:
            if postmaster.ready:
                return True
            if postmaster.state == "ready" and not postmaster.reachable:
                log.warning("postgres lost its socket", pid=postmaster.pid)
                self._stop(postmaster)
            if time.monotonic() > deadline:
                raise self._failure(f"the server (process {postmaster.pid}) does not become ready")
            time.sleep(_POLL_SECONDS)
        return False

    def _remove_stale_files(self) -> None:
        """Remove the files of a dead server.

        PostgreSQL refuses to start if the process id in its pid file belongs to a zombie or, after a
        reboot, to another program. The caller holds the server lock, so no server runs.
        """
        if (pid := written_pid(self._cluster.data)) is not None:
            reap(pid)
        (self._cluster.data / "postmaster.pid").unlink(missing_ok=True)
        for name in (SOCKET_NAME, f"{SOCKET_NAME}.lock"):
            (self._socket_dir / name).unlink(missing_ok=True)

    def _end_remnants(self, server_lock: int) -> None:
        """End processes of a dead server. One in a long computation does not notice the death."""
        left = remnants(self._cluster.data)
        for process in left:
            log.warning("ended a postgres process without a server", pid=process.pid)
            process.send_signal(signal.SIGQUIT)
        seconds = _REMNANT_SECONDS if left else 0
        if not _wait_until(lambda: self._no_server_runs(server_lock), seconds):
            raise DatabaseUnavailable(
                f"a server that this process cannot see uses {self._cluster.data}",
                hint="if a container or another machine shares this home, stop Butlers there",
            )

    def _no_server_runs(self, server_lock: int) -> bool:
        if not try_exclusive(server_lock):
            return False
        # A clean stop removes the pid file; then there are no processes to look for.
        return written_pid(self._cluster.data) is None or not remnants(self._cluster.data)

    def _make_cluster(self, account: Account, start_lock: int) -> None:
        self._cluster.make(account, self._search_path, durable=self._durable, start_lock=start_lock)
        log.info("postgres database created", data=str(self._cluster.data))

    def _start(self, account: Account, server_lock: int) -> None:
        began, since = time.monotonic(), self._cluster.log.stat().st_size
        # To the log file: the server must not hold the terminal of this process.
        with self._cluster.log.open("ab") as output:
            done = account.run(
                self._start_command(),
                cwd=self._root,
                search_path=self._search_path,
                output=output,
                keep=[server_lock],
            )
        if done.returncode != 0:
            raise self._failure("the server did not start", since)
        seconds = round(time.monotonic() - began, 3)
        log.info("postgres started", pid=self.pid, account=account.name, seconds=seconds)

    def _start_command(self) -> list[str | Path]:
        """Return the pg_ctl command. With pg_ctl the server is not our child and does not become a zombie.

        pg_ctl builds a shell line without quoting its paths, so they are relative to our folder.
        """
        settings = _SETTINGS | ({} if self._durable else _TESTS_ONLY)
        settings |= {"unix_socket_directories": _quote_in_list(self._socket_dir)}
        options = " ".join(f"-c {shlex.quote(f'{key}={value}')}" for key, value in settings.items())
        wait = ["-w", "-t", str(int(self._start_timeout))]
        where: list[str | Path] = ["-D", self._cluster.data.name, "-l", self._cluster.log.name]
        return [self._binaries / "pg_ctl", "start", "-s", *wait, *where, "-o", options]

    def _open_log(self) -> None:
        path = self._cluster.log
        if path.exists() and path.stat().st_size > _LOG_LIMIT:
            path.replace(path.with_suffix(".log.1"))
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))

    # -- stopping; the start lock is held ------------------------------------------------------

    def _release_lease(self) -> None:
        lease, self._lease = self._lease, None
        if lease is None or not lease.end():
            return
        postmaster = find_postmaster(self._cluster.data)
        if postmaster is not None:
            self._stop(postmaster)

    def _stop(self, postmaster: Postmaster) -> None:
        steps = ((signal.SIGINT, _FAST_STOP_SECONDS), (signal.SIGQUIT, _IMMEDIATE_STOP_SECONDS))
        for how, seconds in steps:
            try:
                os.kill(postmaster.pid, how)
            except ProcessLookupError:
                return
            # The process, not its pid file, which is removed earlier.
            if _wait_until(lambda: not serves(postmaster.pid, self._cluster.data), seconds):
                reap(postmaster.pid)
                log.info("postgres stopped", pid=postmaster.pid, how=how.name)
                return
        raise self._failure(f"the server (process {postmaster.pid}) does not stop")

    # -- errors -------------------------------------------------------------------------------

    def _failure(self, what: str, since: int = 0) -> DatabaseUnavailable:
        return DatabaseUnavailable(
            f"the embedded database: {what}\n{self._cluster.log_tail(since)}",
            hint=f"see {self._cluster.log}, and check the free disk space",
        )

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        try:
            yield
        except ButlersError:
            raise
        except (OSError, psutil.Error) as error:
            raise DatabaseUnavailable(
                f"the embedded database under {self._root} cannot be used: {error}",
                hint="check that the folder belongs to this user, and the free disk space",
            ) from error


def _wait_until(met: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not met():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _quote_in_list(path: Path) -> str:
    return '"' + str(path).replace('"', '""') + '"'
