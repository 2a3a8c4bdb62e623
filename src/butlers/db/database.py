"""A butler's connection pool, with a JSONB codec and transactions that raise typed errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from butlers.domain.errors import DatabaseUnavailable
from butlers.domain.redaction import redactor

CLOSE_S = 5.0
ACQUIRE_S = 10.0  # a caller's longest wait for a free connection
# Longer than any pause between two statements: a frozen process must not keep its locks forever.
IDLE_S = 30

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

# Errors that asyncpg raises while the server is down, stopping or starting.
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
)


@dataclass(frozen=True, slots=True)
class Login:
    """Connection parameters of one role for one database of a server."""

    server_dsn: str = field(repr=False)  # may contain the administrator's password
    user: str
    password: str | None = field(repr=False)
    database: str
    search_path: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # All database passwords pass here: of roles, of the administrator, and in DATABASE_URL.
        written = urlsplit(self.server_dsn).password
        redactor.register(self.password, written, written and unquote(written))

    def arguments(self, application: str) -> dict[str, Any]:
        settings = {"application_name": application}
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

    def get_reset_query(self) -> str:
        return ""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        if query.startswith("BEGIN"):
            query = f"{super().get_reset_query()}\n{query}"
        return await super().execute(query, *args, timeout=timeout)


async def prepare_connection(connection: Connection) -> None:
    """Encode and decode JSONB as Python data on this connection."""
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=_encode_json, decoder=json.loads
    )


def _encode_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


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
            raise _unavailable(error) from error


def is_gone(error: BaseException) -> bool:
    """Return whether the error means that the server is down, stopping or starting."""
    return isinstance(error, GONE)


def _unavailable(error: BaseException) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"the database cannot be reached ({type(error).__name__}: {error})")


class Database:
    """A butler's connection pool. ``transaction()`` commits before the caller answers its client."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], login: Login) -> None:
        self.pool = pool
        self.login = login

    @classmethod
    async def open(cls, login: Login, application: str, *, size: int = 10) -> Database:
        arguments = login.arguments(application)
        arguments["server_settings"]["idle_in_transaction_session_timeout"] = f"{IDLE_S}s"
        with unavailable_when_gone():
            pool = await asyncpg.create_pool(
                **arguments,
                min_size=1,
                max_size=size,
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
            async with (
                self.pool.acquire(timeout=ACQUIRE_S) as connection,
                connection.transaction(readonly=readonly),
            ):
                try:
                    yield connection
                except OSError as error:
                    # If the connection is intact, a file or another host failed.
                    foreign = None if connection.is_closed() else error
                    raise
        except GONE as error:
            if error is foreign:
                raise
            if task and task.cancelling() > cancelled:  # it broke during a cancellation
                raise asyncio.CancelledError from error
            raise _unavailable(error) from error
