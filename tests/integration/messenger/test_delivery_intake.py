"""Intake of deliveries: one key is one delivery; new recipients and outside links need approval."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryState, Intent
from butlers.domain.errors import InvalidMessage, MessageTooLarge, NotFound, StateConflict
from butlers.messenger.policy import QuietHours
from support.deliveries import DeliveryHarness, delivery

DELIVERED, PARKED, EXPIRED = DeliveryState.DELIVERED, DeliveryState.PARKED, DeliveryState.EXPIRED
DISCARDED, DEFERRED = DeliveryState.DISCARDED, DeliveryState.DEFERRED


def send(target: str = "plain:anna", **changes: Any) -> Any:
    return delivery(target, intent=Intent.SEND, **changes)


async def actions(harness: DeliveryHarness) -> list[dict[str, Any]]:
    return await harness.rows("SELECT * FROM pending_actions ORDER BY requested_at, id")


async def park(harness: DeliveryHarness, *parked: Any) -> list[UUID]:
    """Accept deliveries that need approval, and return the ids of the pending actions."""
    for one in parked:
        assert (await harness.delivery(await harness.accept(one, known=False)))["state"] == "parked"
    return [action["id"] for action in await actions(harness)]


# -- one key ---------------------------------------------------------------------------------------


async def test_repeated_notification_is_stored_and_sent_once(harness: DeliveryHarness) -> None:
    one = delivery(request_id=uuid7())
    first = await harness.accept(one)
    again = await harness.accept(replace(one, delivery_id=uuid7()))
    assert again == first
    await harness.until_state(first, DELIVERED)
    await harness.until_settled()
    assert harness.server.times == {str(first): 1}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"message": " "}, InvalidMessage),
        ({"message": "x" * 1_000_001}, MessageTooLarge),
        ({"intent": Intent.REACT, "message": ""}, InvalidMessage),
        ({"target": "a\x00b"}, InvalidMessage),
    ],
)
async def test_invalid_delivery_is_not_stored(
    harness: DeliveryHarness, changes: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        await harness.accept(replace(delivery(), **changes), known=False)
    assert await harness.rows("SELECT 1 FROM deliveries") == []
    assert await harness.rows("SELECT 1 FROM queue_items") == []


async def test_reaction_carries_the_id_of_its_message(harness: DeliveryHarness) -> None:
    sent = await harness.accept(
        delivery(intent=Intent.REACT, message="", emoji="👍", source_event="event-7")
    )
    await harness.until_state(sent, DELIVERED)
    (arrived,) = harness.server.requests
    assert arrived.body["emoji"] == "👍"
    assert arrived.body["in_reply_to"] == "event-7"
    assert arrived.body["message"] == ""


async def test_reaction_on_the_console_is_shown_as_emoji(harness: DeliveryHarness) -> None:
    react = delivery(
        "console:owner", channel="console", intent=Intent.REACT, message="", emoji="✅"
    )
    await harness.until_state(await harness.accept(react), DELIVERED)
    assert await harness.mail() == ["✅"]


# -- reasons for approval ----------------------------------------------------------------------------


async def test_new_recipient_waits_for_approval(harness: DeliveryHarness) -> None:
    await park(harness, send())
    await harness.until_settled()
    assert harness.server.requests == []
    (action,) = await actions(harness)
    assert action["group_key"] == "new_recipient:webhook:plain%3Aanna"
    assert action["expires_at"] - action["requested_at"] == timedelta(hours=48)
    for part in ("health", "plain:anna", "Hello."):
        assert part in action["agent_summary"]


async def test_owners_console_and_replies_need_no_approval(harness: DeliveryHarness) -> None:
    for free in (
        send("console:owner", channel="console", outside_links=("https://evil.example",)),
        delivery("console:owner", channel="console", outside_links=("https://evil.example",)),
        delivery("plain:ben"),
    ):
        await harness.until_state(await harness.accept(free, known=False), DELIVERED)
    assert await actions(harness) == []


async def test_recipient_who_wrote_before_needs_no_approval(harness: DeliveryHarness) -> None:
    await harness.accept(
        delivery("plain:ben"), known=False
    )  # a reply goes where a message came from
    await harness.until_state(await harness.accept(send("plain:ben"), known=False), DELIVERED)
    await park(harness, send("plain:carol"))


async def test_outside_link_waits_for_approval_with_a_known_recipient(
    harness: DeliveryHarness,
) -> None:
    link = "https://evil.example/pay"
    parked = await harness.accept(send(message=f"Pay at {link}", outside_links=(link,)))
    assert (await harness.delivery(parked))["state"] == "parked"
    (action,) = await actions(harness)
    assert action["group_key"] == "outside_links:webhook:plain%3Aanna"
    assert link in action["agent_summary"]
    await harness.approve(action["id"])
    await harness.until_state(parked, DELIVERED)
    # The approval was for this delivery only; the next link is asked about again.
    await harness.accept(send(message=f"Again {link}", outside_links=(link,)))
    assert len(await actions(harness)) == 2


async def test_reply_with_an_outside_link_waits_for_approval(harness: DeliveryHarness) -> None:
    link = "https://evil.example/?secret=4711"
    parked = await harness.accept(delivery(message=f"See {link}", outside_links=(link,)))
    assert (await harness.delivery(parked))["state"] == "parked"
    (action,) = await actions(harness)
    assert action["group_key"] == "outside_links:webhook:plain%3Aanna"
    assert link in action["agent_summary"]
    await harness.until_settled()
    assert harness.server.requests == []
    await harness.approve(action["id"])
    await harness.until_state(parked, DELIVERED)
    assert harness.server.times == {str(parked): 1}


# -- the owner's decision ------------------------------------------------------------------------------


async def test_approved_delivery_is_sent_once_and_its_recipient_is_known(
    harness: DeliveryHarness,
) -> None:
    one = send()
    (action,) = await park(harness, one)
    assert await harness.approve(action) == [one.delivery_id]
    assert await harness.approve(action) == [one.delivery_id]  # the same decision twice is one
    await harness.until_state(one.delivery_id, DELIVERED)
    await harness.until_state(await harness.accept(send(), known=False), DELIVERED)
    assert set(harness.server.times.values()) == {1}
    (row,) = await actions(harness)
    assert (row["status"], row["decided_by"]) == ("executed", "owner")


async def test_97_approved_actions_are_97_deliveries(harness: DeliveryHarness) -> None:
    parked = [send(f"plain:{n}") for n in range(97)]
    for action in await park(harness, *parked):
        await harness.approve(action)
    for one in parked:
        await harness.until_state(one.delivery_id, DELIVERED)
    assert harness.server.times == {str(one.delivery_id): 1 for one in parked}


async def test_approving_a_recipient_releases_all_deliveries_to_them(
    harness: DeliveryHarness,
) -> None:
    parked = [send(message="one"), send(message="two")]
    linked = send(message="three", outside_links=("https://evil.example",))
    first, *_ = await park(harness, *parked, linked)
    assert set(await harness.approve(first)) == {one.delivery_id for one in parked}
    for one in parked:
        await harness.until_state(one.delivery_id, DELIVERED)
    assert (await harness.delivery(linked.delivery_id))["state"] == "parked"  # for its link


async def test_rejected_delivery_is_never_sent(harness: DeliveryHarness) -> None:
    one = send()
    (action,) = await park(harness, one)
    await harness.reject(action)
    await harness.until_state(one.delivery_id, DISCARDED)
    with pytest.raises(StateConflict):
        await harness.approve(action)
    await harness.until_settled()
    assert harness.server.requests == []


async def test_late_approval_restarts_the_time_to_live(harness: DeliveryHarness) -> None:
    one = send()
    (action,) = await park(harness, one)
    harness.clock.leap(hours=47)  # longer than the time to live
    await harness.approve(action)
    await harness.until_state(one.delivery_id, DELIVERED)


async def test_undecided_action_expires_with_its_delivery(harness: DeliveryHarness) -> None:
    one = send()
    (action,) = await park(harness, one)
    harness.clock.leap(hours=48, seconds=1)
    with pytest.raises(StateConflict, match="expired"):
        await harness.approve(action)
    await harness.expire()
    await harness.until_state(one.delivery_id, EXPIRED)
    (row,) = await actions(harness)
    assert row["status"] == "expired"
    await harness.notices().send_notices()  # the question's expiry is told, and not the delivery's
    await harness.until_settled()
    assert harness.server.requests == []
    assert await harness.mail() == []


async def test_deciding_an_unknown_action_is_not_found(harness: DeliveryHarness) -> None:
    with pytest.raises(NotFound) as missing:
        await harness.approve(uuid7())
    assert missing.value.hint


@pytest.mark.parametrize("state", ["accepted", "deferred", "parked", "sending", "delivered"])
async def test_only_ended_undelivered_deliveries_can_be_resent(
    closed: DeliveryHarness, state: str
) -> None:
    sent = await closed.accept(delivery())
    await closed.execute("UPDATE deliveries SET provider_message_id = 'm', state = $1", state)
    with pytest.raises(StateConflict, match=state):
        await closed.resend(sent)


# -- quiet hours -----------------------------------------------------------------------------------


def make_it_quiet(harness: DeliveryHarness, *, send_ttl: timedelta = timedelta(hours=24)) -> None:
    """Return quiet hours from ten minutes ago for the next two hours."""
    now = datetime.now(UTC)
    start, end = now - timedelta(minutes=10), now + timedelta(hours=2)
    quiet = QuietHours.parse(f"{start:%H:%M}-{end:%H:%M}", ZoneInfo("UTC"))
    harness.policy = replace(harness.policy, quiet=quiet, send_ttl=send_ttl)


async def test_quiet_hours_defer_sends_and_not_replies(closed: DeliveryHarness) -> None:
    make_it_quiet(closed)
    await closed.open()
    quiet, answer = send(), delivery("plain:ben")
    await closed.accept(quiet)
    await closed.accept(answer)
    row = await closed.until_state(quiet.delivery_id, DEFERRED)
    assert row["reason"] == "quiet hours"
    assert row["not_before"] > closed.clock.now() + timedelta(hours=1, minutes=55)
    await closed.until_state(answer.delivery_id, DELIVERED)
    await closed.hurry()
    await closed.until_settled()
    assert await closed.attempts(quiet.delivery_id) == []

    closed.clock.leap(hours=2)
    await closed.hurry()
    await closed.until_state(quiet.delivery_id, DELIVERED)


async def test_quiet_hours_do_not_expire_a_short_lived_delivery(
    closed: DeliveryHarness,
) -> None:
    make_it_quiet(closed, send_ttl=timedelta(minutes=15))
    await closed.open()
    parked = [send(message=f"{n}") for n in range(20)]
    for one in parked:
        await closed.accept(one)
    await closed.until_settled()
    closed.clock.leap(hours=2)
    await closed.hurry()
    for one in parked:
        await closed.until_state(one.delivery_id, DELIVERED)
