"""Deliveries past their deadline are not sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from butlers.domain.delivery import DeliveryState, Intent
from support.deliveries import DeliveryHarness, delivery, made_at

DELIVERED = DeliveryState.DELIVERED
EXPIRED = DeliveryState.EXPIRED


@pytest.mark.parametrize(
    ("intent", "age", "state"),
    [
        (Intent.REPLY, timedelta(hours=5, minutes=59), DELIVERED),
        (Intent.REPLY, timedelta(hours=6, seconds=1), EXPIRED),
        (Intent.SEND, timedelta(hours=23, minutes=59), DELIVERED),
        (Intent.SEND, timedelta(hours=24, seconds=1), EXPIRED),
    ],
)
async def test_delivery_past_its_deadline_expires_unsent(
    harness: DeliveryHarness, intent: Intent, age: timedelta, state: DeliveryState
) -> None:
    sent = await harness.accept(delivery(intent=intent, age=age))
    await harness.until_state(sent, state)
    assert len(harness.server.requests) == (state is DELIVERED)
    assert [item["state"] for item in await harness.queued()] == ["done"]


async def test_after_a_restart_none_of_110_stale_deliveries_is_sent(
    closed: DeliveryHarness,
) -> None:
    stale = [
        await closed.accept(delivery("sure:anna" if n % 2 else "plain:anna", message=f"{n}"))
        for n in range(110)
    ]
    closed.clock.leap(hours=7)  # the Messenger was off for so long
    await closed.open()
    fresh = await closed.accept(delivery("plain:ben", delivery_id=made_at(closed.clock.now())))
    await closed.until_state(fresh, DELIVERED)
    await closed.until_settled()
    rows = await closed.rows("SELECT state, count(*) AS n FROM deliveries GROUP BY state")
    assert {row["state"]: row["n"] for row in rows} == {"expired": len(stale), "delivered": 1}
    assert list(closed.server.times) == [str(fresh)]
    await closed.notices().send_notices()
    await closed.until_settled()
    (told,) = await closed.mail()
    assert "110 messages" in told
