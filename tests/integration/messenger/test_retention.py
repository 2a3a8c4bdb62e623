"""Retention of deliveries."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from butlers.daemon.retention import delete_old_rows
from butlers.domain.delivery import DeliveryState
from butlers.messenger.role import MessengerRole
from support.deliveries import DeliveryHarness, delivery
from support.webhook_server import CLOSE, status

LONG_AGO = timedelta(days=400)


async def test_retention_deletes_only_old_ended_deliveries(
    harness: DeliveryHarness,
) -> None:
    arrived = await harness.accept(delivery(message="arrived"))
    await harness.until_state(arrived, DeliveryState.DELIVERED)
    harness.server.script(status(400))
    refused = await harness.accept(delivery(message="a dead letter"))
    await harness.until_state(refused, DeliveryState.FAILED)
    harness.server.script(CLOSE)
    untold = await harness.accept(delivery(message="nobody knows, and nobody was told"))
    await harness.until_state(untold, DeliveryState.UNKNOWN)
    await harness.until_settled()
    for table, column in (("deliveries", "accepted_at"), ("queue_items", "finished_at")):
        await harness.execute(f"UPDATE {table} SET {column} = {column} - interval '400 days'")
    await harness.execute("UPDATE deliveries SET told_at = now() WHERE state = 'failed'")
    await harness.execute("UPDATE deliveries SET told_at = NULL WHERE state = 'unknown'")
    young = await harness.accept(delivery(message="young"))
    await harness.until_state(young, DeliveryState.DELIVERED)

    before = harness.clock.now() - timedelta(days=365)
    gone = await delete_old_rows(harness.database, [MessengerRole().retention()], before)
    assert gone["deliveries"] == 1
    rows = await harness.rows("SELECT delivery_id FROM deliveries")
    assert {UUID(str(row["delivery_id"])) for row in rows} == {refused, untold, young}
    attempts = await harness.rows("SELECT DISTINCT delivery_id FROM delivery_attempts")
    assert arrived not in {row["delivery_id"] for row in attempts}
