"""The Messenger's books: old deliveries that are over go, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from butlers.daemon import retention_rows as retention
from butlers.domain.delivery import DeliveryState
from support.deliveries import Office, delivery
from support.webhook_server import CLOSE, status

LONG_AGO = timedelta(days=400)


async def test_old_deliveries_that_are_over_go_and_all_others_stay(office: Office) -> None:
    arrived = await office.accept(delivery(message="arrived"))
    await office.until_state(arrived, DeliveryState.DELIVERED)
    office.server.script(status(400))
    refused = await office.accept(delivery(message="a dead letter"))
    await office.until_state(refused, DeliveryState.FAILED)
    office.server.script(CLOSE)
    untold = await office.accept(delivery(message="nobody knows, and nobody was told"))
    await office.until_state(untold, DeliveryState.UNKNOWN)
    await office.until_settled()
    for table, column in (("deliveries", "accepted_at"), ("queue_items", "finished_at")):
        await office.execute(f"UPDATE {table} SET {column} = {column} - interval '400 days'")
    await office.execute("UPDATE deliveries SET told_at = now() WHERE state = 'failed'")
    await office.execute("UPDATE deliveries SET told_at = NULL WHERE state = 'unknown'")
    young = await office.accept(delivery(message="young"))
    await office.until_state(young, DeliveryState.DELIVERED)

    before = office.clock.now() - timedelta(days=365)
    gone = await retention.sweep(office.database, "messenger", before)
    assert gone["deliveries"] == 1
    rows = await office.rows("SELECT delivery_id FROM deliveries")
    assert {UUID(str(row["delivery_id"])) for row in rows} == {refused, untold, young}
    attempts = await office.rows("SELECT DISTINCT delivery_id FROM delivery_attempts")
    assert arrived not in {row["delivery_id"] for row in attempts}
