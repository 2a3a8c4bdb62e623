"""An independent witness for the queue: a trigger that writes down every change of every item.

And `effects`, a table without any key: what happened twice is there twice.
"""

from __future__ import annotations

from typing import Any, TypeVar
from uuid import NAMESPACE_OID, uuid5

from butlers.db.database import Connection
from butlers.domain.provenance import Provenance, Trust
from butlers.queue import journal
from butlers.queue.journal import CallKey, hash_arguments

PATIENCE_S = 60.0
T = TypeVar("T")

TABLES = """
CREATE TABLE effects (key text NOT NULL, worker text NOT NULL);
CREATE TABLE history (
    step bigint GENERATED ALWAYS AS IDENTITY,
    key text, was text, became text, old_fence bigint, fence bigint, attempts int, max_attempts int
);
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO history (key, was, became, old_fence, fence, attempts, max_attempts)
    VALUES (NEW.key, OLD.state, NEW.state, OLD.fence, NEW.fence, NEW.attempts, NEW.max_attempts);
    RETURN NEW;
END $$;
CREATE TRIGGER witness AFTER UPDATE ON queue_items FOR EACH ROW EXECUTE FUNCTION witness();
"""


async def prepare(connection: Connection) -> None:
    await connection.execute(TABLES)


async def clear(connection: Connection) -> None:
    await connection.execute("TRUNCATE queue_items, call_journal, effects, history")


def call_of(key: str) -> CallKey:
    """The one call that working on an item makes: the same in every run of it."""
    return CallKey(uuid5(NAMESPACE_OID, key), "do", hash_arguments({"key": key}), 0)


async def act(connection: Connection, key: str, worker: str) -> Any:
    """The effect of an item, as a tool call has it: journaled, in the caller's transaction."""
    call = call_of(key)
    done = await journal.begin(connection, call, Provenance(Trust.OWNER))
    if done is not None:
        return done.result
    await connection.execute("INSERT INTO effects (key, worker) VALUES ($1, $2)", key, worker)
    await journal.record(connection, call, {"by": worker})
    return {"by": worker}


async def assert_history_is_sound(connection: Connection) -> None:
    """Assert what must hold in any interleaving, from the changes that the trigger recorded."""
    rows = await connection.fetch("SELECT * FROM history ORDER BY step")
    ends: dict[str, int] = {}
    for row in rows:
        assert row["was"] not in ("done", "dead"), f"an end was undone: {dict(row)}"
        if row["became"] in ("done", "dead"):
            ends[row["key"]] = ends.get(row["key"], 0) + 1
        claimed = row["was"] == "ready" and row["became"] == "leased"
        assert row["fence"] == row["old_fence"] + claimed, f"the fence is wrong: {dict(row)}"
        assert 0 <= row["attempts"] <= row["max_attempts"], f"attempts are wrong: {dict(row)}"
    assert set(ends.values()) <= {1}, f"something ended twice: {ends}"


async def assert_each_ended_once(connection: Connection) -> None:
    """After the drain: everything is done with one effect, or dead with a reason."""
    await assert_history_is_sound(connection)
    rows = await connection.fetch(
        """
        SELECT item.*, (SELECT count(*) FROM effects WHERE effects.key = item.key) AS effects
        FROM queue_items AS item
        """
    )
    for row in rows:
        assert row["state"] in ("done", "dead"), f"left behind: {dict(row)}"
        assert row["finished_at"] is not None
        assert row["holder"] is None
        assert row["lease_until"] is None
        if row["state"] == "done":
            assert row["effects"] == 1, f"{row['key']} is done with {row['effects']} effects"
            assert row["error"] is None
        else:
            assert row["effects"] <= 1
            assert row["error"], f"{row['key']} is dead without a reason"


async def is_locked(connection: Connection, holder: int) -> bool:
    held: bool = await connection.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
            AND ((classid::bigint << 32) | objid::bigint) = $1
        )
        """,
        holder,
    )
    return held


async def vouch(connection: Connection, holder: int) -> None:
    """Take the holder's lock, as the listener of a running daemon does."""
    await connection.execute("SELECT pg_advisory_lock_shared($1)", holder)
