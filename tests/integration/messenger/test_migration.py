"""Migration of deliveries without states: none is lost, sent late or told again."""

from __future__ import annotations

from pathlib import Path

from butlers.db.database import Database, Login
from butlers.db.migrations import Chain, find_chain, migrate, shipped_versions
from butlers.domain.clock import uuid7

OLD = """
INSERT INTO deliveries (delivery_id, idempotency_key, origin, intent, channel, target, message,
                        provider_message_id, delivered_at, accepted_at)
VALUES ($1, $2, 'health', $3, 'console', 'console:owner', 'hi', $4, now(), now() - interval '7 hours')
"""


async def test_migration_gives_old_deliveries_a_state_and_a_time(
    login: Login, tmp_path: Path
) -> None:
    chain = find_chain("messenger", shipped_versions())
    assert chain is not None
    first = tmp_path / "messenger"
    first.mkdir()
    old = chain.directory / "messenger_001_post.py"
    (first / old.name).write_text(old.read_text())
    await migrate(login, [Chain("messenger", first)])

    done, dead, reply, send = (uuid7() for _ in range(4))
    database = await Database.open(login, "tests")
    async with database.transaction() as connection:
        for delivery_id, intent, proof in (
            (done, "reply", "1"),
            (dead, "reply", None),
            (reply, "reply", None),
            (send, "send", None),
        ):
            await connection.execute(OLD, delivery_id, str(delivery_id), intent, proof)
        await connection.execute(
            "INSERT INTO queue_items (id, queue, key, payload, state, max_attempts)"
            " VALUES ($1, 'deliveries', $2, '{}'::jsonb, 'dead', 8)",
            uuid7(),
            str(dead),
        )

    await migrate(login, [chain])

    async with database.transaction() as connection:
        rows = await connection.fetch(
            "SELECT delivery_id, state, told_at IS NULL AS untold, expires_at < now() AS late"
            " FROM deliveries"
        )
    found = {row["delivery_id"]: (row["state"], row["untold"], row["late"]) for row in rows}
    assert found == {
        done: ("delivered", False, True),
        dead: ("failed", False, True),
        reply: ("accepted", True, True),
        send: ("accepted", True, False),
    }
    await database.close()
