"""What is over, and was long ago, goes. What is not over stays, however old it is.

Not over is what a queue still has, its dead letters included, and everything of the same request: a replay
must find what was done. A held message waits for the owner, a line that no console has shown for a reader.
What butlers know of a person's life, the log of sessions and the audit are none of this.

Open is what this schema knows to be open. A Switchboard that ended after a butler took a message and before
that was noted asks once more when it is back; a butler knows the message again for as long as it keeps what
is over. So no butler should keep for a shorter time than the Switchboard may be off.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from butlers.db.database import Connection, Database

BATCH = 1_000  # rows of one transaction, so that nobody has to wait for it

_OPEN = """
SELECT coalesce(array_agg(DISTINCT named), '{}') FROM queue_items, LATERAL unnest(ARRAY[
    split_part(key, ':', 1), payload ->> 'request_id', payload #>> '{request,request_id}',
    payload ->> 'delivery_id'
]) AS named
WHERE state <> 'done' AND named IS NOT NULL
"""
_FILES_AT_WORK = """
SELECT DISTINCT file ->> 'storage_ref' AS reference
FROM queue_items, LATERAL jsonb_array_elements(payload -> 'attachments') AS file
WHERE state <> 'done' AND jsonb_typeof(payload -> 'attachments') = 'array'
"""
_FILES_OF_MESSAGES = """
SELECT DISTINCT file ->> 'storage_ref' AS reference
FROM message_inbox, LATERAL jsonb_array_elements(attachments) AS file
"""

# For each table, which of its rows are over: $1 is the time before which that has to be, $2 what is open.
_EVERYWHERE = {
    "queue_items": """
        state = 'done' AND finished_at < $1 AND split_part(key, ':', 1) <> ALL($2)
        AND coalesce(payload ->> 'request_id', '') <> ALL($2)""",
    "call_journal": "called_at < $1 AND request_id::text <> ALL($2)",
}
_OF_A_ROLE: Mapping[str, Mapping[str, str]] = {
    "switchboard": {
        # With the decisions on it.
        "message_inbox": "received_at < $1 AND state <> 'held' AND request_id::text <> ALL($2)",
        "said": "said_at < $1 AND coalesce(request_id::text, '') <> ALL($2)",
    },
    "messenger": {
        # With its attempts, and what the owner was asked about it.
        "deliveries": """
            accepted_at < $1 AND delivery_id::text <> ALL($2)
            AND coalesce(request_id::text, '') <> ALL($2)
            AND (state IN ('delivered', 'discarded')
                 OR state IN ('unknown', 'expired', 'failed') AND told_at IS NOT NULL)""",
        "console_mailbox": "shown_at < $1 AND coalesce(request_id::text, '') <> ALL($2)",
    },
}


async def sweep(database: Database, role: str, before: datetime) -> dict[str, int]:
    """Remove what was over before then; how many rows of each table that were."""
    tables = {**_EVERYWHERE, **_OF_A_ROLE.get(role, {})}
    return {table: await _sweep(database, table, over, before) for table, over in tables.items()}


async def _sweep(database: Database, table: str, over: str, before: datetime) -> int:
    gone = 0
    while True:
        async with database.transaction() as connection:
            still_open = await connection.fetchval(_OPEN)
            rows = await connection.fetch(
                f"""
                DELETE FROM {table}
                WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {over} LIMIT {BATCH})) AND {over}
                RETURNING 1
                """,
                before,
                still_open,
            )
        gone += len(rows)
        if len(rows) < BATCH:
            return gone


async def files_at_work(connection: Connection) -> set[str]:
    """The references of files that something unfinished here will want."""
    return _references(await connection.fetch(_FILES_AT_WORK))


async def files_of_messages(connection: Connection) -> set[str]:
    """The references of files that a message of the Switchboard's has."""
    return _references(await connection.fetch(_FILES_OF_MESSAGES))


def _references(rows: list[Any]) -> set[str]:
    return {row["reference"] for row in rows if row["reference"]}
