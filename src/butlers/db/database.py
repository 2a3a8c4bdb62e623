"""A butler's connection pool, with a JSONB codec and transactions that raise typed errors."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from butlers.domain.errors import DatabaseExhausted, DatabaseUnavailable
from butlers.domain.provenance import Provenance
from butlers.domain.redaction import redactor

CLOSE_S = 5.0
POOL_SIZE = 10  # of one butler, where the server has connections enough
ACQUIRE_S = 10.0  # a caller's longest wait for a free connection
# Longer than any pause between two statements: a frozen process must not keep its locks forever.
IDLE_S = 30

# After that, a connection that a burst of work opened is closed again.
UNUSED_S = 20.0

LOCK_SALT = "butlers.lock_salt"

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

# Errors of a server that runs and cannot do this now. The transaction has changed nothing.
EXHAUSTED = (
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.PostgresIOError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
FAULT_SHOWN_S = 60.0  # how long a fault counts in the health after the last time that it was met
# Errors that asyncpg raises while the server is down, stopping or starting, and those above.
GONE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that was cut in the middle of an operation
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    *EXHAUSTED,
)


_LOST = ("closed", "closing", "released")  # what asyncpg says of a connection or pool that is gone


@dataclass(frozen=True, slots=True)
class Login:
    """Connection parameters of one role for one database of a server."""

    server_dsn: str = field(repr=False)  # may contain the administrator's password
    user: str
    password: str | None = field(repr=False)
    database: str
    search_path: tuple[str, ...] = ()
    lock_salt: int = field(default=0, repr=False)  # part of the keys of its advisory locks
    ours: bool = False  # the server runs for this fleet alone

    def __post_init__(self) -> None:
        # All database passwords pass here: of roles, of the administrator, and in DATABASE_URL.
        written = urlsplit(self.server_dsn).password
        redactor.register(self.password, written, written and unquote(written))

    def arguments(self, application: str) -> dict[str, Any]:
        settings = {"application_name": application, LOCK_SALT: str(self.lock_salt)}
        if self.search_path:
            settings["search_path"] = ",".join(self.search_path)  # plain names, validated by config
        password = {"password": self.password} if self.password is not None else {}
        return {
            "dsn": self.server_dsn,
            "user": self.user,
            "database": self.database,
            "server_settings": settings,
            "timeout": 10,
            **password,
        }

    @property
    def schema(self) -> str:
        return self.search_path[0]


class PooledConnection(asyncpg.Connection):
    """Resets its state together with the next BEGIN, which saves a round trip."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.notified: set[str] = set()  # topics of the current transaction

    def get_reset_query(self) -> str:
        return ""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        if query.startswith("BEGIN"):
            query = f"{super().get_reset_query()}\n{query}"
        return await super().execute(query, *args, timeout=timeout)


def note_topic(connection: Connection, topic: str) -> None:
    """Note that the current transaction notifies this topic, for ``Database.on_commit``."""
    _topics_of(connection).add(topic)


def _topics_of(connection: Connection) -> set[str]:
    """Return the topics that a pooled connection's transaction has notified so far."""
    notified: set[str] = getattr(connection, "notified", set())
    return notified


async def prepare_connection(connection: Connection) -> None:
    """Encode and decode JSONB as Python data on this connection."""
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_encode_json, decoder=json.loads
    )


def _encode_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


async def set_provenance(connection: Connection, source: Provenance) -> None:
    """Set the provenance of the records that the current transaction writes."""
    await connection.execute("SELECT set_config('butlers.provenance', $1, true)", source.to_json())


# Advisory locks belong to the whole database: with known keys, one butler's role could block another.
_LOCK_KEY = (
    f"hashtextextended($1, CAST(coalesce(nullif(current_setting('{LOCK_SALT}', true), ''), '0')"
    " AS bigint))"
)


async def lock_until_commit(connection: Connection, name: str, *, shared: bool = False) -> None:
    """Take the advisory lock of this name until the transaction ends; ``shared`` locks for reading.

    Its key depends on the butler that takes it, so two butlers never share a lock.
    """
    lock = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    await connection.execute(f"SELECT {lock}({_LOCK_KEY})", name)


def lock_statement(parameter: str) -> str:
    """Return the statement of ``lock_until_commit`` with another spelling of its parameter."""
    return f"SELECT pg_advisory_xact_lock({_LOCK_KEY.replace('$1', parameter)})"


async def connect(login: Login, application: str) -> asyncpg.Connection[asyncpg.Record]:
    with unavailable_when_gone():
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            **login.arguments(application)
        )
        await prepare_connection(connection)
        return connection


@asynccontextmanager
async def connection_to(
    login: Login, application: str
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Open a connection outside any pool, for the length of the block."""
    connection = await connect(login, application)
    try:
        yield connection
    finally:
        await connection.close()


class unavailable_when_gone:  # noqa: N801  (a context manager that reads as a sentence)
    """Raises the retryable DatabaseUnavailable for errors of an unavailable server."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and is_gone(error):
            raise unavailable(error) from error


def is_gone(error: BaseException) -> bool:
    """Return whether the error means that the server cannot be used at the moment.

    asyncpg reports a lost connection with the same type as a wrong call of ours, which no retry mends.
    """
    if isinstance(error, asyncpg.InterfaceError):
        return any(one in str(error) for one in _LOST)
    return isinstance(error, GONE)


def unavailable(error: BaseException) -> DatabaseUnavailable:
    """Return the retryable error for one that ``is_gone``."""
    if isinstance(error, EXHAUSTED):
        return DatabaseExhausted(
            f"the database cannot do this now ({type(error).__name__}: {error})"
        )
    return DatabaseUnavailable(f"the database cannot be reached ({type(error).__name__}: {error})")


def _ignore_commit(_topics: set[str], _pid: int) -> None:
    return None


class Database:
    """A butler's connection pool. ``transaction()`` commits before the caller answers its client."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], login: Login) -> None:
        self.pool = pool
        self.login = login
        self._fault: tuple[float, str] | None = None
        # Told the topics that a committed transaction notified, and the process id of its connection.
        self.on_commit: Callable[[set[str], int], None] = _ignore_commit

    @property
    def fault(self) -> str | None:
        """The lack of resources that was met last, if that was recently."""
        if self._fault is None or time.monotonic() - self._fault[0] > FAULT_SHOWN_S:
            return None
        return self._fault[1]

    @classmethod
    async def open(cls, login: Login, application: str, *, size: int = POOL_SIZE) -> Database:
        arguments = login.arguments(application)
        arguments["server_settings"]["idle_in_transaction_session_timeout"] = f"{IDLE_S}s"
        with unavailable_when_gone():
            pool = await asyncpg.create_pool(
                **arguments,
                min_size=1,
                max_size=size,
                max_inactive_connection_lifetime=UNUSED_S,
                init=prepare_connection,
                connection_class=PooledConnection,
            )
            return cls(pool, login)

    async def close(self) -> None:
        """Close the pool; after CLOSE_S seconds, terminate the connections still in use."""
        try:
            await asyncio.wait_for(self.pool.close(), CLOSE_S)
        except TimeoutError:
            self.pool.terminate()

    @asynccontextmanager
    async def transaction(self, *, readonly: bool = False) -> AsyncIterator[Connection]:
        foreign: OSError | None = None
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        try:
            async with self.pool.acquire(timeout=ACQUIRE_S) as connection:
                notified = _topics_of(connection)
                notified.clear()
                async with connection.transaction(readonly=readonly):
                    try:
                        yield connection
                    except OSError as error:
                        # If the connection is intact, a file or another host failed.
                        foreign = None if connection.is_closed() else error
                        raise
                if notified:
                    self.on_commit(notified, connection.get_server_pid())
        except DatabaseExhausted as error:  # a tool's error, translated inside the transaction
            self._fault = (time.monotonic(), error.message)
            raise
        except GONE as error:
            if not is_gone(error) or (error is foreign and error.errno not in FULL):
                raise
            if task and task.cancelling() > cancelled:  # it broke during a cancellation
                raise asyncio.CancelledError from error
            if isinstance(error, EXHAUSTED) or error is foreign:
                self._fault = (time.monotonic(), f"{type(error).__name__}: {error}")
            if error is foreign:
                raise DatabaseExhausted(f"the disk is full ({error.strerror})") from error
            raise unavailable(error) from error
