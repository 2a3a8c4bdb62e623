"""The call journal: a repeated tool call returns its recorded result instead of running again.

The key is the request, the tool, the hash of the arguments, and the number of such calls before it in the
run. The row is written first, in the transaction of the effect: a second run that makes the same call waits
on the unique key until the first run has committed, and then reads the result.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.provenance import Provenance

# Counted by a trigger on each table of records.
_DELETED = "coalesce(nullif(current_setting('butlers.deleted', true), ''), '0')"


@dataclass(frozen=True, slots=True)
class CallKey:
    request_id: UUID
    tool: str
    arguments_hash: str
    ordinal: int


class CallCounter:
    """Numbers the calls of one run of a session, so that a second run finds the results of the first."""

    def __init__(self, request_id: UUID) -> None:
        self.request_id = request_id
        self._taken: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def next_key(self, tool: str, arguments: Mapping[str, Any]) -> CallKey:
        digest = hash_arguments(arguments)
        taken = self._taken[tool, digest]
        ordinal = next(number for number in itertools.count() if number not in taken)
        taken.add(ordinal)
        return CallKey(self.request_id, tool, digest, ordinal)

    def give_back(self, key: CallKey) -> None:
        """Free the number of a failed call for its next attempt.

        Otherwise a success after a failure would be recorded as the second such call, and a later run
        whose first attempt succeeds would repeat the effect.
        """
        self._taken[key.tool, key.arguments_hash].discard(key.ordinal)


def hash_arguments(arguments: Mapping[str, Any]) -> str:
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Recorded:
    """Result of a call that an earlier run made."""

    result: Any


async def begin(connection: Connection, key: CallKey, source: Provenance) -> Recorded | None:
    """Claim the call for this transaction, or return the result that an earlier run recorded.

    Also sets the provenance of the rows that the transaction writes, which saves a round trip.
    """
    claimed = await connection.fetchval(
        """
        WITH source AS MATERIALIZED (SELECT set_config('butlers.provenance', $6, true) AS set)
        INSERT INTO call_journal (request_id, tool, arguments_hash, ordinal, session_id)
        SELECT $1::uuid, $2, $3, $4::integer, $5::uuid FROM source WHERE source.set IS NOT NULL
        ON CONFLICT DO NOTHING RETURNING true
        """,
        key.request_id,
        key.tool,
        key.arguments_hash,
        key.ordinal,
        source.session_id,
        source.to_json(),
    )
    if claimed:
        return None
    result = await connection.fetchval(
        """
        SELECT result FROM call_journal
        WHERE request_id = $1 AND tool = $2 AND arguments_hash = $3 AND ordinal = $4
        """,
        key.request_id,
        key.tool,
        key.arguments_hash,
        key.ordinal,
    )
    return Recorded(result)


async def record(connection: Connection, key: CallKey, result: Any) -> int:
    """Record the result, in the transaction of the effect.

    Return the number of records that the transaction has deleted, which saves a round trip.
    """
    deleted = await connection.fetchval(
        f"""
        UPDATE call_journal SET result = $5
        WHERE request_id = $1 AND tool = $2 AND arguments_hash = $3 AND ordinal = $4
        RETURNING {_DELETED}
        """,
        key.request_id,
        key.tool,
        key.arguments_hash,
        key.ordinal,
        result,
    )
    return int(deleted)


async def count_deleted(connection: Connection) -> int:
    """Return the number of records that the transaction has deleted."""
    return int(await connection.fetchval(f"SELECT {_DELETED}"))
