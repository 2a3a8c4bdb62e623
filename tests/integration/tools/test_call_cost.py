"""Cost of a tool call in round trips to the database, counted, not timed."""

from __future__ import annotations

from uuid import uuid4

import pytest
from asyncpg.connection import LoggedQuery

from butlers.db import database
from butlers.db.database import Connection
from butlers.domain.errors import ButlersError
from support.in_process import InProcessButler

Sent = list[tuple[int, str]]  # backend, statement


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Record what pools send that are opened from now on."""
    found: Sent = []
    prepare = database.prepare_connection

    async def overheard(connection: Connection) -> None:
        await prepare(connection)
        backend = connection.get_server_pid()

        def note(query: LoggedQuery) -> None:
            found.append((backend, " ".join(query.query.split())))

        connection.add_query_logger(note)

    monkeypatch.setattr(database, "prepare_connection", overheard)
    return found


def transaction_of(what: str, sent: Sent) -> list[str]:
    """Return the statements of the last transaction with this statement, up to its backend's next one."""
    *_, (backend, done) = [one for one in sent if what in one[1]]
    queries = [query for one, query in sent if one == backend]
    at = len(queries) - 1 - queries[::-1].index(done)
    begin = max(number for number in range(at) if queries[number].endswith("BEGIN;"))
    later = (n for n in range(at, len(queries)) if queries[n].endswith("BEGIN;"))
    return queries[begin : next(later, len(queries))]


async def test_read_call_of_a_session_takes_three_round_trips(
    sent: Sent, tester: InProcessButler
) -> None:
    async with tester.session(uuid4()) as session:
        await session.call("quick")
    begin, audit, commit = transaction_of("INTO tool_calls", sent)
    assert begin.endswith("BEGIN;")
    assert "INSERT INTO tool_calls" in audit
    assert commit == "COMMIT;"


async def test_write_call_is_one_transaction_with_journal_and_audit(
    sent: Sent, tester: InProcessButler
) -> None:
    async with tester.session(uuid4()) as session:
        await session.call("write", {"text": "milk"})
    begin, journal, effect, answer, audit, commit = transaction_of("INTO tool_calls", sent)
    assert begin.endswith("BEGIN;")
    assert "INSERT INTO call_journal" in journal
    assert "INSERT INTO entries" in effect
    assert "UPDATE call_journal" in answer
    assert "INSERT INTO tool_calls" in audit
    assert commit == "COMMIT;"


@pytest.mark.parametrize("tool", ["write_and_fail", "write_and_crash"])
async def test_failed_call_leaves_only_its_audit_row(
    sent: Sent, tester: InProcessButler, tool: str
) -> None:
    async with tester.session(uuid4()) as session:
        with pytest.raises(ButlersError):
            await session.call(tool, {"text": "lost"})
    assert transaction_of("INSERT INTO entries", sent)[-1] == "ROLLBACK;"
    assert await tester.count("entries") == 0
    assert await tester.count("call_journal") == 0
    (row,) = await tester.rows("SELECT tool, ok FROM tool_calls")
    assert (row["tool"], row["ok"]) == (tool, False)
