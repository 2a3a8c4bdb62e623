"""A database whose queue writes every change of its items into a history table."""

from __future__ import annotations

import pytest

from butlers.db.database import Database
from support import queue_history


@pytest.fixture
async def recorded_database(database: Database) -> Database:
    async with database.transaction() as connection:
        await queue_history.prepare(connection)
    return database
