"""One butler's door to PostgreSQL: a pool with the JSONB codec, and transactions with typed errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from butlers.domain.errors import DatabaseUnavailable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]"

# What asyncpg raises when the server is gone, going, or not yet back.
GONE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)


@dataclass(frozen=True, slots=True)
class Login:
    """How one role reaches one database of a server."""

    server_dsn: str
    user: str
    password: str | None
    database: str
    search_path: tuple[str, ...] = ()

    def arguments(self, application: str) -> dict[str, Any]:
        settings = {"application_name": application}
        if self.search_path:
            settings["search_path"] = ",".join(f'"{name}"' for name in self.search_path)
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


async def prepare_connection(connection: Connection) -> None:
    """JSONB is Python data on every connection, so that nobody encodes twice."""
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


class unavailable_when_gone:  # noqa: N801  (a context manager that reads as a sentence)
    """Turns "the server is not there" into the retryable DatabaseUnavailable."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, GONE):
            raise DatabaseUnavailable(
                f"the database can not be reached ({type(error).__name__}: {error})"
            ) from error


class Database:
    """A butler's pool. Work happens in ``transaction()``; the commit comes before any answer."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], login: Login) -> None:
        self.pool = pool
        self.login = login

    @classmethod
    async def open(cls, login: Login, application: str, *, size: int = 10) -> Database:
        with unavailable_when_gone():
            pool = await asyncpg.create_pool(
                **login.arguments(application),
                min_size=1,
                max_size=size,
                init=prepare_connection,
            )
            return cls(pool, login)

    async def close(self) -> None:
        await self.pool.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        with unavailable_when_gone():
            async with self.pool.acquire(timeout=10) as connection, connection.transaction():
                yield connection

    async def is_alive(self) -> bool:
        try:
            async with self.pool.acquire(timeout=2) as connection:
                await connection.fetchval("SELECT 1", timeout=2)
        except GONE:
            return False
        return True
