"""Notices: the owner is told once, in one message, of every delivery that did not arrive."""

from __future__ import annotations

import asyncio

from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryState
from support.deliveries import DeliveryHarness, delivery
from support.webhook_server import CLOSE, status

UNKNOWN, FAILED = DeliveryState.UNKNOWN, DeliveryState.FAILED


async def test_owner_is_told_once_of_an_unknown_delivery_with_commands(
    harness: DeliveryHarness,
) -> None:
    harness.server.script(CLOSE)
    sent = await harness.accept(delivery())
    await harness.until_state(sent, UNKNOWN)
    keeper = harness.notices()
    for _ in range(3):
        await keeper.send_notices()
    await harness.until_settled()
    (told,) = await harness.mail()
    for part in ("do not know whether", str(sent), "plain:anna", "butlers deliveries resend"):
        assert part in told
    assert harness.server.times == {str(sent): 1}


async def test_failed_resend_is_told_again(
    harness: DeliveryHarness,
) -> None:
    harness.server.script(CLOSE, CLOSE)
    sent = await harness.accept(delivery())
    await harness.until_state(sent, UNKNOWN)
    await harness.notices().send_notices()
    await harness.resend(sent)
    await harness.until_state(sent, UNKNOWN)
    await harness.notices().send_notices()
    await harness.until_settled()
    assert len(await harness.mail()) == 2


async def test_deliveries_that_end_together_are_one_notice(harness: DeliveryHarness) -> None:
    harness.server.usual = status(404)
    failed = [await harness.accept(delivery(f"plain:{n}")) for n in range(8)]
    for one in failed:
        await harness.until_state(one, FAILED)
    await harness.notices().send_notices()
    await harness.until_settled()
    (told,) = await harness.mail()
    assert "8 messages could not be delivered" in told
    assert "and 3 more" in told


async def test_ended_delivery_wakes_the_notice_loop(harness: DeliveryHarness) -> None:
    keeping = asyncio.create_task(harness.notices().run())
    try:
        harness.server.script(status(404))
        await harness.accept(delivery())
        await harness.until_mail()
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_delivery_with_a_dead_queue_item_is_ended(
    closed: DeliveryHarness,
) -> None:
    sent = [await closed.accept(delivery(f"plain:{n}")) for n in range(2)]
    await closed.execute("UPDATE queue_items SET state = 'dead'")  # its worker was killed each time
    await closed.execute("UPDATE deliveries SET state = 'sending' WHERE target = 'plain:1'")
    await closed.open()
    await closed.notices().send_notices()
    await closed.until_settled()
    states = [(await closed.delivery(one))["state"] for one in sent]
    assert states == ["failed", "unknown"]
    (told,) = await closed.mail()
    assert all(str(one) in told for one in sent)


async def test_failed_notice_is_not_reported_again(harness: DeliveryHarness) -> None:
    harness.server.script(status(404))
    await harness.accept(delivery(request_id=uuid7()))
    await harness.until_settled()
    await harness.notices().send_notices()
    await harness.until_settled()
    await harness.execute(
        "UPDATE deliveries SET state = 'failed' WHERE origin = 'messenger'"
    )  # even if it could not be shown
    await harness.notices().send_notices()
    await harness.until_settled()
    assert len(await harness.mail()) == 1
