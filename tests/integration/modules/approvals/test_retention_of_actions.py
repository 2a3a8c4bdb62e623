"""Retention of pending actions."""

from __future__ import annotations

from datetime import timedelta

from butlers.daemon.retention import delete_old_rows
from butlers.domain.message import RouteDecision, RouteRequest
from butlers.modules.approvals.role import RETENTION
from butlers.queue import leased_queue as queue
from butlers.wire.codec import encode
from integration.modules.approvals.conftest import GATED, decide, stranger
from support.in_process import MakeButler

YEAR = timedelta(days=365)


async def test_retention_deletes_only_old_decided_actions(make_butler: MakeButler) -> None:
    """The decision of a request that is still open is kept: a replay must find it."""
    gated = make_butler(extra=GATED)  # without a Switchboard, so no notice stays open
    await gated.start()
    asked = {}
    for name in ("over", "replayed", "open", "young"):
        message = stranger(name)
        async with gated.session(request=message) as session:
            waiting = await session.call("write", {"text": name})
        asked[name] = (waiting["action_id"], message)
        if name != "open":
            await decide(gated, "reject_action", waiting["action_id"])
    await gated.rows(
        "UPDATE pending_actions SET decided_at = decided_at - interval '400 days'"
        " WHERE id::text <> $1",
        asked["young"][0],
    )
    message = asked["replayed"][1]
    route = RouteRequest(message, "tester", "x", RouteDecision("tester", "test", "test"))
    butler = gated.butler
    async with butler.database.transaction() as connection:
        await queue.enqueue(
            connection, "unserved", str(message.request_id), encode(route), delay=YEAR
        )

    gone = await delete_old_rows(butler.database, [RETENTION], butler.clock.now() - YEAR)
    assert gone["pending_actions"] == 1
    kept = {str(row["id"]) for row in await gated.rows("SELECT id FROM pending_actions")}
    assert kept == {asked[name][0] for name in ("replayed", "open", "young")}
