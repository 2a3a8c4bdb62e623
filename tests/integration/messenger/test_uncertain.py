"""Deliveries that may have been sent: never sent again automatically, except to idempotent targets."""

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
async def test_uncertain_delivery_is_unknown_and_never_sent_again(
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
async def test_receiver_that_stores_and_answers_503_gets_one_request(
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
async def test_retry_after_header_means_not_delivered(closed: DeliveryHarness, code: int) -> None:
    closed.server.script(status(code, Retry_After="1"))
    await closed.open()
    sent = await closed.accept(delivery())
    await closed.until_state(sent, DeliveryState.DEFERRED)
    closed.clock.leap(seconds=61)
    await closed.hurry()
    await closed.until_state(sent, DELIVERED)
    assert closed.server.times == {str(sent): 1}


@pytest.mark.parametrize("trouble", [HANG, CLOSE], ids=["hangs", "closes"])
async def test_uncertain_delivery_to_an_idempotent_target_is_sent_again(
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


async def test_uncertain_delivery_that_expires_is_unknown(
    closed: DeliveryHarness,
) -> None:
    closed.server.script(CLOSE)
    closed.clock.leap(hours=1)  # so that the test decides when its next turn comes
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


async def test_uncertain_delivery_that_is_refused_later_is_unknown(
    closed: DeliveryHarness,
) -> None:
    closed.server.script(CLOSE, status(400))
    closed.clock.leap(hours=1)  # so that the test decides when its next turn comes
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


async def test_uncertain_delivery_of_a_removed_channel_is_unknown(
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


async def test_owner_may_resend_an_unknown_delivery(harness: DeliveryHarness) -> None:
    harness.server.script(CLOSE)
    sent = await harness.accept(delivery())
    await harness.until_state(sent, UNKNOWN)
    await harness.resend(sent)
    await harness.until_state(sent, DELIVERED)
    assert await harness.attempts(sent) == ["uncertain", "delivered"]
    assert harness.server.times == {str(sent): 2}


async def test_crashing_channel_leaves_the_delivery_unknown(
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


async def test_process_end_while_sending_leaves_the_delivery_unknown(
    closed: DeliveryHarness,
) -> None:
    sent = await closed.accept(delivery())
    sure = await closed.accept(delivery("sure:anna"))
    # As a killed process leaves them: in the state sending, without a lease.
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


async def test_worker_with_a_lost_lease_does_not_call_the_channel(closed: DeliveryHarness) -> None:
    sent = await closed.accept(delivery())
    async with closed.database.transaction() as connection:
        (late,) = await queue.claim(connection, DELIVERIES, holder=1)
    await closed.open()  # the lease has no heartbeat, so another worker takes the item over
    await closed.until_state(sent, DELIVERED)
    with pytest.raises(LeaseLost):
        await closed.sender.send(late)
    assert closed.server.times == {str(sent): 1}


async def test_late_receipt_of_an_unknown_delivery_counts(closed: DeliveryHarness) -> None:
    closed.server.script(WAIT)
    await closed.open()
    sent = await closed.accept(delivery())
    await closed.until_asked()
    # As if this process had been frozen past its lease and another had taken the item over.
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


async def test_database_outage_loses_no_receipt(
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
            return any("retrying to store the answer" in call.args[0] for call in heard.calls)

        await until("it to be tried without a database", tried)
    finally:
        await connection.execute(f'ALTER ROLE "{role}" CONNECTION LIMIT -1')
        await connection.close()

    await until("it to be delivered", partial(is_delivered, closed, sent))
    assert closed.server.times == {str(sent): 1}


async def test_stop_during_a_request_leaves_the_delivery_unknown(
    closed: DeliveryHarness,
) -> None:
    await closed.open()
    closed.server.script(HANG)
    sent = await closed.accept(delivery())
    await closed.until_asked()
    await closed.close(grace_s=0.1)  # too short for the answer, so the item is released
    assert (await closed.delivery(sent))["state"] == "sending"
    await closed.open()
    await closed.until_state(sent, UNKNOWN)
    assert len(closed.server.requests) == 1
