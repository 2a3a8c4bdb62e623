"""The delivery sender: a delivery is sent once, and its receipt is stored."""

from __future__ import annotations

from butlers.domain.delivery import DeliveryState
from support.deliveries import DeliveryHarness, delivery
from support.webhook_server import HANG, status

DELIVERED = DeliveryState.DELIVERED
UNKNOWN = DeliveryState.UNKNOWN


async def test_delivered_state_has_the_platforms_message_id(harness: DeliveryHarness) -> None:
    sent = await harness.accept(delivery())
    row = await harness.until_state(sent, DELIVERED)
    assert row["provider_message_id"] == harness.server.messages[str(sent)]
    assert row["delivered_at"] is not None
    assert await harness.attempts(sent) == ["delivered"]


async def test_response_without_an_id_is_not_delivered(harness: DeliveryHarness) -> None:
    bodies = ("thanks", "[]", '{"id": ""}', '{"id": true}')
    for body in bodies:
        harness.server.script(status(200, body, takes=True))
        sent = await harness.accept(delivery())
        row = await harness.until_state(sent, UNKNOWN)
        assert row["provider_message_id"] is None
        assert "without an id" in row["reason"]
    assert len(harness.server.requests) == len(bodies)


async def test_sending_state_is_committed_before_the_channel_is_called(
    harness: DeliveryHarness,
) -> None:
    harness.server.script(HANG)
    sent = await harness.accept(delivery())
    await harness.until_asked()
    row = await harness.delivery(sent)
    assert row["state"] == "sending"
    assert await harness.attempts(sent) == [None]


async def test_deliveries_to_one_recipient_keep_their_order(closed: DeliveryHarness) -> None:
    texts = [f"number {number}" for number in range(20)]
    for text in texts:
        await closed.accept(delivery(message=text))
    await closed.open(workers=4)
    await closed.until_settled()
    assert [arrival.body["message"] for arrival in closed.server.requests] == texts


async def test_deferred_deliveries_keep_their_order(closed: DeliveryHarness) -> None:
    closed.limits = {"per_minute": 1000, "per_recipient_per_minute": 5}
    texts = [f"number {number}" for number in range(15)]
    for text in texts:
        await closed.accept(delivery(message=text))
    await closed.open(workers=4)
    for _ in range(3):
        await closed.until_settled()
        closed.clock.leap(seconds=61)
        await closed.hurry()
    await closed.until_settled()
    assert [arrival.body["message"] for arrival in closed.server.requests] == texts
