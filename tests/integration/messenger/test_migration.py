"""Migration of deliveries without states: none is lost, sent late or told again."""

from __future__ import annotations

from pathlib import Path

from butlers.db.database import Database, Login
from butlers.db.migrations import Chain, find_chain, migrate, shipped_versions
from butlers.domain.approval import ActionStatus
from butlers.domain.clock import uuid7
from butlers.messenger.approvals import RELEASE
from butlers.modules.approvals.actions import PendingAction

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


PARKED = """
INSERT INTO deliveries (delivery_id, idempotency_key, origin, intent, channel, target, message, state,
                        accepted_at, expires_at)
VALUES ($1::uuid, $1::uuid::text, 'health', 'send', 'webhook', 'plain:anna', 'hi', $2, now(), now())
"""
ASKED = """
INSERT INTO pending_actions (id, kind, summary, payload, delivery_id, created_at, expires_at, decision)
VALUES ($1, 'new_recipient', 'health wants to write', $2, $3, now(), now() + interval '1 day', $4)
"""


async def test_open_questions_move_to_the_approvals_module(login: Login, tmp_path: Path) -> None:
    """An upgrade with a delivery that waits: its question is open in the new table, with its arguments."""
    chain, approvals = (find_chain(name, shipped_versions()) for name in ("messenger", "approvals"))
    assert chain is not None
    assert approvals is not None
    before = tmp_path / "messenger"
    before.mkdir()
    for path in sorted(chain.directory.glob("messenger_00[123]*.py")):
        (before / path.name).write_text(path.read_text())
    await migrate(login, [Chain("messenger", before)])
    waiting, decided, question = uuid7(), uuid7(), uuid7()
    database = await Database.open(login, "tests")
    payload = {"reasons": ["new_recipient"], "links": []}
    async with database.transaction() as connection:
        await connection.execute(PARKED, waiting, "parked")
        await connection.execute(PARKED, decided, "discarded")
        await connection.execute(ASKED, question, payload, waiting, None)
        await connection.execute(ASKED, uuid7(), payload, decided, "rejected")

    await migrate(login, [chain, approvals])

    async with database.transaction() as connection:
        (row,) = await connection.fetch("SELECT * FROM pending_actions")
        gone = await connection.fetchval("SELECT to_regclass('delivery_questions') IS NULL")
    assert gone
    action = PendingAction.from_row(row)
    assert (action.id, action.tool_name) == (question, RELEASE)
    assert (action.status, action.decides_group) == (ActionStatus.PENDING, True)
    assert action.tool_args["delivery_id"] == str(waiting)
    assert action.tool_args["reasons"] == ["new_recipient"]
    await database.close()
