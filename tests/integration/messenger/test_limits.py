"""Circuit breaker and rate limits with real deliveries: they wait, and none is lost."""

from __future__ import annotations

import random

import pytest

from butlers.domain.delivery import DeliveryState
from butlers.messenger.limits import RULES
from butlers.queue.leased_queue import MAX_ATTEMPTS
from support.deliveries import DeliveryHarness, delivery
from support.webhook_server import ANSWER, CLOSE, FAIL, status

DELIVERED = DeliveryState.DELIVERED


async def test_open_breaker_delays_deliveries_without_attempts(
    closed: DeliveryHarness,
) -> None:
    closed.server.usual = FAIL
    await closed.open(workers=1)
    sent = [await closed.accept(delivery(f"sure:{n}")) for n in range(8)]
    while len(closed.server.requests) < RULES.failures:
        await closed.hurry()
        await closed.until_settled()
    await closed.hurry()
    await closed.until_settled()
    assert len(closed.server.requests) == RULES.failures
    waiting = [row for one in sent if (row := await closed.delivery(one))["state"] == "deferred"]
    assert len(waiting) == len(sent)
    assert any("failed 5 times in a row" in row["reason"] for row in waiting)
    (line,) = closed.sender.limits.describe()["lines"]
    assert (line["line"], line["breaker"]) == ("webhook:sure", "open")

    closed.server.usual = ANSWER
    closed.clock.leap(seconds=61)
    while await closed.rows("SELECT 1 FROM deliveries WHERE state <> 'delivered'"):
        closed.clock.leap(seconds=1)
        await closed.hurry()
        await closed.until_settled()
    assert sorted(closed.server.times.values()) == [1] * len(sent)


async def test_open_breaker_survives_a_restart(closed: DeliveryHarness) -> None:
    closed.server.usual = FAIL
    await closed.open(workers=1)
    await closed.accept(delivery("sure:anna"))
    while len(closed.server.requests) < RULES.failures:
        await closed.hurry()
        await closed.until_settled()
    await closed.close()
    await closed.open(workers=1)
    await closed.hurry()
    await closed.until_settled()
    assert len(closed.server.requests) == RULES.failures


async def test_deliveries_above_the_rate_limit_wait(closed: DeliveryHarness) -> None:
    closed.limits = {"per_minute": 1000, "per_recipient_per_minute": 3}
    await closed.open()
    mine = [await closed.accept(delivery()) for _ in range(5)]
    other = await closed.accept(delivery("plain:ben"))
    await closed.until_state(other, DELIVERED)
    await closed.until_settled()
    states = [(await closed.delivery(one))["state"] for one in mine]
    assert states == ["delivered"] * 3 + ["deferred", "accepted"]

    await closed.close()  # a restart does not give a new minute
    await closed.open()
    await closed.hurry()
    await closed.until_settled()
    assert len(closed.server.messages) == 4
    closed.clock.leap(seconds=61)
    await closed.hurry()
    for one in mine:
        await closed.until_state(one, DELIVERED)
    assert set(closed.server.times.values()) == {1}


async def test_owners_console_has_no_rate_limit(closed: DeliveryHarness) -> None:
    closed.limits = {"per_minute": 1, "per_recipient_per_minute": 1}
    await closed.open()
    sent = [
        await closed.accept(delivery("console:owner", channel="console", message=f"{n}"))
        for n in range(5)
    ]
    for one in sent:
        await closed.until_state(one, DELIVERED)
    assert await closed.mail() == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_delivery_is_lost_or_doubled_by_a_failing_channel(
    closed: DeliveryHarness, seed: int
) -> None:
    dice = random.Random(seed)
    moods = [ANSWER, FAIL, CLOSE, status(503), status(429, Retry_After="1"), status(502)]
    closed.server.script(*dice.choices(moods, k=60))
    targets = [dice.choice(["plain:anna", "sure:anna", "plain:ben"]) for _ in range(30)]
    sent = {await closed.accept(delivery(to, message=f"{n}")): to for n, to in enumerate(targets)}
    await closed.open()
    while await closed.rows("SELECT 1 FROM queue_items WHERE state IN ('ready', 'leased')"):
        await closed.until_settled()
        closed.clock.leap(seconds=dice.choice([1, 30, 61]))
        if dice.random() < 0.2:
            await closed.close()
            await closed.open()
        await closed.hurry()

    for one, target in sent.items():
        row, times = await closed.delivery(one), closed.server.times.get(str(one), 0)
        state = row["state"]
        if target.startswith("sure"):
            # Sent again until there is a receipt or the attempts are used up.
            assert state == "delivered" or (state, row["tries"]) == ("unknown", MAX_ATTEMPTS), (
                f"seed {seed}"
            )
            assert state == "unknown" or str(one) in closed.server.messages
        else:
            assert (state, times) in {("delivered", 1), ("unknown", 1), ("unknown", 0)}, (
                f"seed {seed}"
            )
