"""Failed deliveries: refused, out of attempts, or waiting for an unavailable channel."""

from __future__ import annotations

from datetime import timedelta

import pytest

from butlers.domain.delivery import DeliveryState
from butlers.domain.errors import DeliveryRefused
from butlers.domain.queues import DELIVERIES
from butlers.messenger.limits import RULES
from butlers.queue import dead_letters
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import MAX_ATTEMPTS
from support.deliveries import DeliveryHarness, delivery
from support.webhook_server import ANSWER, FAIL, status

DELIVERED = DeliveryState.DELIVERED
DEFERRED = DeliveryState.DEFERRED
FAILED = DeliveryState.FAILED


async def test_refused_delivery_is_a_dead_letter_at_once(harness: DeliveryHarness) -> None:
    harness.server.script(status(422, "no such person"))
    sent = await harness.accept(delivery())
    row = await harness.until_state(sent, FAILED)
    assert "422" in row["reason"]
    (attempt,) = await harness.rows("SELECT * FROM delivery_attempts")
    assert (attempt["outcome"], attempt["error_code"]) == ("refused", "delivery_refused")
    assert attempt["response"] == "no such person"
    assert [item["state"] for item in await harness.queued()] == ["dead"]


async def test_replayed_dead_letter_has_all_its_attempts_again(
    harness: DeliveryHarness,
) -> None:
    harness.server.script(status(404))
    sent = await harness.accept(delivery())
    await harness.until_state(sent, FAILED)
    harness.clock.leap(hours=30)  # past its deadline, which a replay renews
    async with harness.database.transaction() as connection:
        (item,) = await connection.fetch("SELECT id FROM queue_items")
        assert await dead_letters.replay(connection, item["id"])
    await harness.until_state(sent, DELIVERED)
    assert await harness.attempts(sent) == ["refused", "delivered"]


async def test_crash_after_a_stored_refusal_does_not_send_again(
    closed: DeliveryHarness,
) -> None:
    closed.server.script(status(400))
    sent = await closed.accept(delivery())
    async with closed.database.transaction() as connection:
        (lease,) = await queue.claim(connection, DELIVERIES, holder=1)
    with pytest.raises(DeliveryRefused):
        await (await closed.make_sender()).send(
            lease
        )  # the process ends before the dead letter is stored
    await closed.open()
    await closed.notices().send_notices()
    row = await closed.until_state(sent, FAILED)
    assert "400" in row["reason"]
    assert closed.server.times == {}
    await closed.until_settled()
    await closed.notices().send_notices()
    await closed.until_settled()
    assert await closed.attempts(sent) == ["refused"]
    assert len(closed.server.requests) == 1
    assert len(await closed.mail()) == 1


async def test_resend_removes_the_dead_letter(harness: DeliveryHarness) -> None:
    harness.server.script(status(404))
    sent = await harness.accept(delivery())
    await harness.until_state(sent, FAILED)
    await harness.resend(sent)
    await harness.until_state(sent, DELIVERED)
    assert [item["state"] for item in await harness.queued()] == ["done"]


async def test_unknown_channel_is_refused_by_name(harness: DeliveryHarness) -> None:
    sent = await harness.accept(delivery(channel="pigeon"))
    row = await harness.until_state(sent, FAILED)
    assert "no channel 'pigeon'" in row["reason"]
    assert await harness.attempts(sent) == []


async def test_unconfigured_webhook_is_refused_by_name(
    harness: DeliveryHarness,
) -> None:
    sent = await harness.accept(delivery("nowhere:anna"))
    row = await harness.until_state(sent, FAILED)
    assert "no webhook 'nowhere'" in row["reason"]
    assert harness.sender.limits.describe()["lines"] == []  # an unknown webhook has no line


async def test_failing_delivery_ends_after_its_attempts_and_blocks_no_other(
    closed: DeliveryHarness,
) -> None:
    closed.server.poison = {"poison"}
    await closed.open()
    poison = await closed.accept(delivery("sure:anna", message="poison"))
    others = []
    while (await closed.delivery(poison))["state"] != "failed":
        others.append(await closed.accept(delivery("sure:ben", message=f"{len(others)}")))
        await closed.until_settled()
        closed.clock.leap(seconds=20)
        await closed.hurry()
        await closed.until_settled()
    row = await closed.delivery(poison)
    assert f"after {MAX_ATTEMPTS} attempts" in row["reason"]
    assert set(await closed.attempts(poison)) == {"failed"}
    assert sorted(item["state"] for item in await closed.queued())[0] == "dead"
    closed.clock.leap(seconds=61)
    await closed.hurry()
    for one in others:
        await closed.until_state(one, DELIVERED)
    assert closed.server.times == {str(one): 1 for one in others}


async def test_failing_line_uses_up_no_attempts(
    closed: DeliveryHarness,
) -> None:
    closed.server.usual = FAIL  # for a quarter of an hour
    await closed.open()
    sent = [await closed.accept(delivery("sure:anna", message=f"{n}")) for n in range(3)]
    for _ in range(15):
        await closed.hurry()
        await closed.until_settled()
        closed.clock.leap(seconds=61)
    for one in sent:
        row = await closed.delivery(one)
        assert row["state"] in ("deferred", "accepted")  # the first, and those behind it
        assert row["tries"] <= RULES.failures
    assert len(closed.server.requests) > MAX_ATTEMPTS
    closed.server.usual = ANSWER
    while await closed.rows("SELECT 1 FROM deliveries WHERE state <> 'delivered'"):
        closed.clock.leap(seconds=10)
        await closed.hurry()
        await closed.until_settled()
    assert set(closed.server.times.values()) == {1}


async def test_unavailable_channel_uses_up_no_attempts_and_loses_nothing(
    closed: DeliveryHarness,
) -> None:
    await closed.open()
    closed.server.usual = status(503)  # as from a server that is being restarted
    sent = await closed.accept(delivery("sure:anna"))
    for _ in range(MAX_ATTEMPTS + 4):
        closed.clock.leap(seconds=60)
        await closed.hurry()
        await closed.until_settled()
    row = await closed.delivery(sent)
    assert (row["state"], row["tries"]) == ("deferred", 0)
    assert len(await closed.attempts(sent)) > MAX_ATTEMPTS
    closed.server.usual = ANSWER
    closed.clock.leap(seconds=60)
    await closed.hurry()
    await closed.until_state(sent, DELIVERED)
    assert closed.server.times == {str(sent): 1}


async def test_refused_connection_is_not_unknown(closed: DeliveryHarness) -> None:
    closed.server.close()
    await closed.open()
    sent = await closed.accept(delivery())
    row = await closed.until_state(sent, DEFERRED)
    assert "cannot be reached" in row["reason"]
    assert row["not_before"] is not None
    assert set(await closed.attempts(sent)) == {"unavailable"}


async def test_retry_after_pauses_the_whole_line(
    harness: DeliveryHarness,
) -> None:
    harness.server.script(status(429, "slow down", Retry_After="120"))
    first = await harness.accept(delivery())
    row = await harness.until_state(first, DEFERRED)
    left = row["not_before"] - harness.clock.now()
    assert timedelta(seconds=100) < left <= timedelta(seconds=121)
    second = await harness.accept(delivery("plain:ben"))
    row = await harness.until_state(second, DEFERRED)
    assert "asked for a pause" in row["reason"]
    assert await harness.attempts(second) == []
    other = await harness.accept(delivery("sure:anna"))  # another line
    await harness.until_state(other, DELIVERED)
    assert len(harness.server.requests) == 2

    harness.clock.leap(seconds=121)
    await harness.hurry()
    for sent in (first, second):
        await harness.until_state(sent, DELIVERED)
