"""The housekeeper: the owner is told once, together, and of everything that did not arrive."""

from __future__ import annotations

import asyncio

from butlers.domain.delivery import DeliveryState, Intent
from butlers.domain.ids import uuid7
from support.deliveries import Office, delivery
from support.webhook_server import CLOSE, status

UNKNOWN, FAILED = DeliveryState.UNKNOWN, DeliveryState.FAILED


async def test_an_unknown_delivery_is_told_once_with_what_can_be_done(office: Office) -> None:
    office.server.script(CLOSE)
    sent = await office.accept(delivery())
    await office.until_state(sent, UNKNOWN)
    keeper = office.housekeeper()
    for _ in range(3):
        await keeper.tidy()
    await office.until_settled()
    (told,) = await office.mail()
    for part in ("do not know whether", str(sent), "plain:anna", "butlers deliveries resend"):
        assert part in told
    assert office.server.times == {str(sent): 1}


async def test_it_is_told_again_when_it_is_sent_again_and_fails_again(office: Office) -> None:
    office.server.script(CLOSE, CLOSE)
    sent = await office.accept(delivery())
    await office.until_state(sent, UNKNOWN)
    await office.housekeeper().tidy()
    await office.resend(sent)
    await office.until_state(sent, UNKNOWN)
    await office.housekeeper().tidy()
    await office.until_settled()
    assert len(await office.mail()) == 2


async def test_what_ends_together_is_one_message(office: Office) -> None:
    office.server.usual = status(404)
    failed = [await office.accept(delivery(f"plain:{n}")) for n in range(8)]
    for one in failed:
        await office.until_state(one, FAILED)
    await office.accept(delivery("plain:new", intent=Intent.SEND), known=False)
    await office.housekeeper().tidy()
    await office.until_settled()
    (told,) = await office.mail()
    assert "8 messages could not be delivered" in told
    assert "and 3 more" in told
    assert "waits for your word" in told


async def test_the_loop_is_woken_by_what_ends(office: Office) -> None:
    keeping = asyncio.create_task(office.housekeeper().run())
    try:
        office.server.script(status(404))
        await office.accept(delivery())
        await office.until_mail()
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_a_delivery_whose_item_died_without_it_is_not_left_open(closed: Office) -> None:
    sent = [await closed.accept(delivery(f"plain:{n}")) for n in range(2)]
    await closed.execute("UPDATE queue_items SET state = 'dead'")  # its worker was killed each time
    await closed.execute("UPDATE deliveries SET state = 'sending' WHERE target = 'plain:1'")
    await closed.open()
    await closed.housekeeper().tidy()
    await closed.until_settled()
    states = [(await closed.delivery(one))["state"] for one in sent]
    assert states == ["failed", "unknown"]
    (told,) = await closed.mail()
    assert all(str(one) in told for one in sent)


async def test_a_notice_is_not_told_of(office: Office) -> None:
    office.server.script(status(404))
    await office.accept(delivery(request_id=uuid7()))
    await office.until_settled()
    await office.housekeeper().tidy()
    await office.until_settled()
    await office.execute(
        "UPDATE deliveries SET state = 'failed' WHERE origin = 'messenger'"
    )  # even if it could not be shown
    await office.housekeeper().tidy()
    await office.until_settled()
    assert len(await office.mail()) == 1
