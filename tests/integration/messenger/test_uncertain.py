"""What may have gone out or not: never sent again by itself, unless a repeat can not double it."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import CapturingLogger

from butlers.db.database import Login
from butlers.domain.delivery import DeliveryReceipt, DeliveryRequest, DeliveryState
from butlers.domain.errors import DatabaseUnavailable, LeaseLost
from butlers.domain.queues import DELIVERIES
from butlers.messenger import sender as deliver
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from support.deliveries import DeliveryHarness, delivery
from support.waiting import until
from support.webhook_server import CLOSE, HANG, WAIT, status

DELIVERED = DeliveryState.DELIVERED
UNKNOWN = DeliveryState.UNKNOWN


@pytest.mark.parametrize("trouble", [HANG, CLOSE], ids=["hangs", "closes"])
async def test_what_may_have_gone_out_is_unknown_and_never_sent_again(
    closed: DeliveryHarness, trouble: Any
) -> None:
    closed.timeout_s = 0.3
    closed.server.script(trouble)
    await closed.open()
    sent = await closed.accept(delivery())
    row = await closed.until_state(sent, UNKNOWN)
    assert "did not answer" in row["reason"]
    assert await closed.attempts(sent) == ["uncertain"]
    assert [item["state"] for item in await closed.queued()] == ["done"]
    await closed.close()

    await closed.open()  # a restart does not send it again either
    await closed.hurry()
    await closed.until_settled()
    assert closed.server.times == {str(sent): 1}


@pytest.mark.parametrize("code", [408, 429, 503])
async def test_a_receiver_that_took_it_and_says_not_now_gets_it_once(
    closed: DeliveryHarness, code: int
) -> None:
    closed.server.script(status(code, takes=True))
    await closed.open()
    sent = await closed.accept(delivery())
    row = await closed.until_state(sent, UNKNOWN)
    assert str(code) in row["reason"]
    closed.clock.leap(seconds=61)
    await closed.hurry()
    await closed.until_settled()
    assert closed.server.times == {str(sent): 1}


@pytest.mark.parametrize("code", [429, 503])
async def test_a_receiver_that_says_when_to_come_again_has_not_taken_it(
    closed: DeliveryHarness, code: int
) -> None:
    closed.server.script(status(code, Retry_After="1"))
    await closed.open()
    sent = await closed.accept(delivery())
    await closed.until_state(sent, DeliveryState.DEFERRED)
    closed.clock.leap(seconds=61)
    await closed.hurry()
    await closed.until_state(sent, DELIVERED)
    assert closed.server.times == {str(sent): 1}


@pytest.mark.parametrize("trouble", [HANG, CLOSE], ids=["hangs", "closes"])
async def test_where_a_repeat_can_not_double_it_is_repeated(
    closed: DeliveryHarness, trouble: Any
) -> None:
    closed.timeout_s = 0.3
    closed.server.script(trouble, trouble)
    await closed.open()
    sent = await closed.accept(delivery("sure:anna"))
    row = await closed.until_state(sent, DELIVERED)
    assert await closed.attempts(sent) == ["uncertain", "uncertain", "delivered"]
    assert {arrival.key for arrival in closed.server.requests} == {str(sent)}
    assert closed.server.messages == {str(sent): row["provider_message_id"]}


async def test_what_may_have_arrived_and_became_too_late_is_not_said_to_be_unsent(
    closed: DeliveryHarness,
) -> None:
    closed.server.script(CLOSE)
    closed.clock.leap(hours=1)  # so that its next turn comes when the test says so
    await closed.open()
    sent = await closed.accept(delivery("sure:anna"))
    await closed.until_state(sent, DeliveryState.DEFERRED)
    closed.clock.leap(hours=7)
    await closed.hurry()
    row = await closed.until_state(sent, UNKNOWN)
    assert row["reason"].startswith("an earlier attempt may have arrived; its time was over")
    assert closed.server.times == {str(sent): 1}
    await closed.notices().send_notices()
    await closed.until_settled()
    (told,) = await closed.mail()
    assert "do not know whether" in told
    assert "was not sent" not in told


async def test_what_may_have_arrived_and_is_refused_later_is_not_said_to_have_failed(
    closed: DeliveryHarness,
) -> None:
    closed.server.script(CLOSE, status(400))
    closed.clock.leap(hours=1)  # so that its next turn comes when the test says so
    await closed.open()
    sent = await closed.accept(delivery("sure:anna"))
    await closed.until_state(sent, DeliveryState.DEFERRED)
    closed.clock.leap(minutes=10)
    await closed.hurry()
    row = await closed.until_state(sent, UNKNOWN)
    assert row["reason"].startswith("an earlier attempt may have arrived; ")
    assert "400" in row["reason"]
    assert await closed.attempts(sent) == ["uncertain", "refused"]
    assert [item["state"] for item in await closed.queued()] == ["done"]


async def test_what_may_have_arrived_before_its_channel_was_taken_away_is_unknown(
    closed: DeliveryHarness,
) -> None:
    sent = await closed.accept(delivery("sure:anna", channel="pager"))
    await closed.execute("UPDATE deliveries SET state = 'sending'")
    await closed.execute(
        "INSERT INTO delivery_attempts (delivery_id, number, recipient, started_at)"
        " VALUES ($1, 1, 'pager:sure:anna', now())",
        sent,
    )
    await closed.open()
    row = await closed.until_state(sent, UNKNOWN)
    assert "there is no channel 'pager'" in row["reason"]
    assert await closed.attempts(sent) == ["died"]


async def test_the_owner_may_send_an_unknown_one_again(harness: DeliveryHarness) -> None:
    harness.server.script(CLOSE)
    sent = await harness.accept(delivery())
    await harness.until_state(sent, UNKNOWN)
    await harness.resend(sent)
    await harness.until_state(sent, DELIVERED)
    assert await harness.attempts(sent) == ["uncertain", "delivered"]
    assert harness.server.times == {str(sent): 2}


async def test_a_channel_that_crashes_leaves_it_unknown(
    harness: DeliveryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        name = "broken"

        def idempotent(self, target: str) -> bool:
            return False

        def line(self, target: str) -> str | None:
            return self.name

        async def send(self, delivery: DeliveryRequest) -> DeliveryReceipt:
            raise KeyError("what")

    monkeypatch.setattr(harness.sender, "_senders", {"broken": Broken()})
    sent = await harness.accept(delivery(channel="broken", target="x"))
    row = await harness.until_state(sent, UNKNOWN)
    assert "KeyError" in row["reason"]


async def test_a_process_that_ended_while_sending_leaves_an_unknown_one(
    closed: DeliveryHarness,
) -> None:
    sent = await closed.accept(delivery())
    sure = await closed.accept(delivery("sure:anna"))
    # As a killed process leaves them: being sent, and no longer claimed by anybody.
    await closed.execute("UPDATE deliveries SET state = 'sending'")
    await closed.execute(
        "INSERT INTO delivery_attempts (delivery_id, number, line, recipient, started_at)"
        " SELECT delivery_id, 1, 'webhook:plain', target, now() FROM deliveries"
    )
    await closed.open()
    row = await closed.until_state(sent, UNKNOWN)
    assert "while it was being sent" in row["reason"]
    assert await closed.attempts(sent) == ["died"]
    await closed.until_state(sure, DELIVERED)
    assert await closed.attempts(sure) == ["died", "delivered"]
    assert closed.server.times == {str(sure): 1}


async def test_whoever_lost_its_lease_does_not_reach_the_channel(closed: DeliveryHarness) -> None:
    sent = await closed.accept(delivery())
    async with closed.database.transaction() as connection:
        (late,) = await queue.claim(connection, DELIVERIES, holder=1)
    await closed.open()  # nobody vouches for that holder, so another takes the item over
    await closed.until_state(sent, DELIVERED)
    with pytest.raises(LeaseLost):
        await closed.sender.send(late)
    assert closed.server.times == {str(sent): 1}


async def test_a_proof_that_comes_after_it_was_given_up_counts(closed: DeliveryHarness) -> None:
    closed.server.script(WAIT)
    await closed.open()
    sent = await closed.accept(delivery())
    await closed.until_asked()
    # As if this process had been frozen past its lease, and another had taken the item over.
    (row,) = await closed.rows("UPDATE queue_items SET fence = fence + 1 RETURNING *")
    other = await closed.make_sender()
    given_up = await other.send(Lease.from_row(row))
    assert given_up["state"] == "unknown"
    closed.server.release()
    await until("the proof to be kept", partial(is_delivered, closed, sent))
    assert closed.server.times == {str(sent): 1}


async def is_delivered(harness: DeliveryHarness, delivery_id: UUID) -> bool:
    try:
        return bool((await harness.delivery(delivery_id))["state"] == "delivered")
    except DatabaseUnavailable:
        return False


async def test_an_outage_of_the_database_loses_no_proof(
    closed: DeliveryHarness, admin: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = CapturingLogger()
    monkeypatch.setattr(deliver, "log", heard)
    monkeypatch.setattr(deliver, "RETRY_S", 0.01)
    name, role = closed.database.login.database, closed.database.login.user
    closed.server.script(WAIT)
    await closed.open()
    sent = await closed.accept(delivery())
    await closed.until_asked()
    connection = await asyncpg.connect(**admin.arguments("tests"))
    try:
        await connection.execute(f'ALTER ROLE "{role}" CONNECTION LIMIT 0')
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        closed.server.release()

        async def tried() -> bool:
            return any("could not write down" in call.args[0] for call in heard.calls)

        await until("it to be tried without a database", tried)
    finally:
        await connection.execute(f'ALTER ROLE "{role}" CONNECTION LIMIT -1')
        await connection.close()

    await until("it to be delivered", partial(is_delivered, closed, sent))
    assert closed.server.times == {str(sent): 1}


async def test_a_stop_that_can_not_wait_for_the_answer_leaves_an_unknown_one(
    closed: DeliveryHarness,
) -> None:
    await closed.open()
    closed.server.script(HANG)
    sent = await closed.accept(delivery())
    await closed.until_asked()
    await closed.close(grace_s=0.1)  # in vain: it is given back, and nobody knows
    assert (await closed.delivery(sent))["state"] == "sending"
    await closed.open()
    await closed.until_state(sent, UNKNOWN)
    assert len(closed.server.requests) == 1
