"""The desk: one key is one delivery, new recipients and foreign links wait for the owner's word."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from butlers.domain.delivery import DeliveryState, Intent
from butlers.domain.errors import InvalidMessage, MessageTooLarge, NotFound, StateConflict
from butlers.domain.ids import uuid7
from butlers.messenger.pending_actions import Decision
from butlers.messenger.quiet_hours import QuietHours
from support.deliveries import Office, delivery

DELIVERED, PARKED, EXPIRED = DeliveryState.DELIVERED, DeliveryState.PARKED, DeliveryState.EXPIRED
DISCARDED, DEFERRED = DeliveryState.DISCARDED, DeliveryState.DEFERRED
APPROVED, REJECTED = Decision.APPROVED, Decision.REJECTED


def send(target: str = "plain:anna", **changes: Any) -> Any:
    return delivery(target, intent=Intent.SEND, **changes)


async def actions(office: Office) -> list[dict[str, Any]]:
    return await office.rows("SELECT * FROM pending_actions ORDER BY created_at, id")


async def park(office: Office, *parked: Any) -> list[UUID]:
    """Accept what is not let through, and give the ids of the questions."""
    for one in parked:
        assert (await office.delivery(await office.accept(one, known=False)))["state"] == "parked"
    return [action["id"] for action in await actions(office)]


# -- one key ---------------------------------------------------------------------------------------


async def test_the_same_notification_is_kept_and_sent_once(office: Office) -> None:
    one = delivery(request_id=uuid7())
    first = await office.accept(one)
    again = await office.accept(replace(one, delivery_id=uuid7()))
    assert again == first
    await office.until_state(first, DELIVERED)
    await office.until_settled()
    assert office.server.times == {str(first): 1}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"message": " "}, InvalidMessage),
        ({"message": "x" * 1_000_001}, MessageTooLarge),
        ({"intent": Intent.REACT, "message": ""}, InvalidMessage),
        ({"target": "a\x00b"}, InvalidMessage),
    ],
)
async def test_what_no_channel_could_deliver_leaves_nothing(
    office: Office, changes: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        await office.accept(replace(delivery(), **changes), known=False)
    assert await office.rows("SELECT 1 FROM deliveries") == []
    assert await office.rows("SELECT 1 FROM queue_items") == []


async def test_a_reaction_travels_with_the_message_that_it_is_for(office: Office) -> None:
    sent = await office.accept(
        delivery(intent=Intent.REACT, message="", emoji="👍", source_event="event-7")
    )
    await office.until_state(sent, DELIVERED)
    (arrived,) = office.server.requests
    assert arrived.body["emoji"] == "👍"
    assert arrived.body["in_reply_to"] == "event-7"
    assert arrived.body["message"] == ""


async def test_a_reaction_on_the_console_is_shown_as_its_emoji(office: Office) -> None:
    react = delivery(
        "console:owner", channel="console", intent=Intent.REACT, message="", emoji="✅"
    )
    await office.until_state(await office.accept(react), DELIVERED)
    assert await office.mail() == ["✅"]


# -- who is asked about ----------------------------------------------------------------------------


async def test_a_new_recipient_waits_for_the_owners_word(office: Office) -> None:
    await park(office, send())
    await office.until_settled()
    assert office.server.requests == []
    (action,) = await actions(office)
    assert action["kind"] == "new_recipient"
    assert action["expires_at"] - action["created_at"] == timedelta(hours=72)
    for part in ("health", "plain:anna", "Hello."):
        assert part in action["summary"]


async def test_the_owners_console_and_replies_need_no_word(office: Office) -> None:
    for free in (
        send("console:owner", channel="console", outside_links=("https://evil.example",)),
        delivery("console:owner", channel="console", outside_links=("https://evil.example",)),
        delivery("plain:ben"),
    ):
        await office.until_state(await office.accept(free, known=False), DELIVERED)
    assert await actions(office) == []


async def test_whoever_wrote_to_us_may_be_written_to(office: Office) -> None:
    await office.accept(
        delivery("plain:ben"), known=False
    )  # a reply goes where a message came from
    await office.until_state(await office.accept(send("plain:ben"), known=False), DELIVERED)
    await park(office, send("plain:carol"))


async def test_a_link_from_outside_waits_even_for_a_known_recipient(office: Office) -> None:
    link = "https://evil.example/pay"
    parked = await office.accept(send(message=f"Pay at {link}", outside_links=(link,)))
    assert (await office.delivery(parked))["state"] == "parked"
    (action,) = await actions(office)
    assert action["kind"] == "outside_links"
    assert link in action["summary"]
    await office.decide(action["id"], APPROVED)
    await office.until_state(parked, DELIVERED)
    # The word was about this message; the next link is another question.
    await office.accept(send(message=f"Again {link}", outside_links=(link,)))
    assert len(await actions(office)) == 2


async def test_an_answer_with_a_link_from_somebody_else_waits_too(office: Office) -> None:
    link = "https://evil.example/?secret=4711"
    parked = await office.accept(delivery(message=f"See {link}", outside_links=(link,)))
    assert (await office.delivery(parked))["state"] == "parked"
    (action,) = await actions(office)
    assert action["kind"] == "outside_links"
    assert link in action["summary"]
    await office.until_settled()
    assert office.server.requests == []
    await office.decide(action["id"], APPROVED)
    await office.until_state(parked, DELIVERED)
    assert office.server.times == {str(parked): 1}


# -- the owner's word ------------------------------------------------------------------------------


async def test_what_is_approved_is_delivered_once_and_its_recipient_is_known(
    office: Office,
) -> None:
    one = send()
    (action,) = await park(office, one)
    assert await office.decide(action, APPROVED) == [one.delivery_id]
    assert await office.decide(action, APPROVED) == []  # the same word twice is one word
    await office.until_state(one.delivery_id, DELIVERED)
    await office.until_state(await office.accept(send(), known=False), DELIVERED)
    assert set(office.server.times.values()) == {1}
    (row,) = await actions(office)
    assert (row["decision"], row["decided_by"]) == ("approved", "owner")


async def test_97_approved_actions_are_97_deliveries(office: Office) -> None:
    parked = [send(f"plain:{n}") for n in range(97)]
    for action in await park(office, *parked):
        await office.decide(action, APPROVED)
    for one in parked:
        await office.until_state(one.delivery_id, DELIVERED)
    assert office.server.times == {str(one.delivery_id): 1 for one in parked}


async def test_one_word_on_a_recipient_is_a_word_on_all_that_waits_for_them(office: Office) -> None:
    parked = [send(message="one"), send(message="two")]
    linked = send(message="three", outside_links=("https://evil.example",))
    first, *_ = await park(office, *parked, linked)
    assert set(await office.decide(first, APPROVED)) == {one.delivery_id for one in parked}
    for one in parked:
        await office.until_state(one.delivery_id, DELIVERED)
    assert (await office.delivery(linked.delivery_id))["state"] == "parked"  # it is more than new


async def test_what_is_rejected_is_never_sent(office: Office) -> None:
    one = send()
    (action,) = await park(office, one)
    assert await office.decide(action, REJECTED) == []
    await office.until_state(one.delivery_id, DISCARDED)
    with pytest.raises(StateConflict):
        await office.decide(action, APPROVED)
    await office.until_settled()
    assert office.server.requests == []


async def test_a_word_that_comes_late_begins_a_new_time(office: Office) -> None:
    one = send()
    (action,) = await park(office, one)
    office.clock.leap(hours=71)  # longer than a delivery lives
    await office.decide(action, APPROVED)
    await office.until_state(one.delivery_id, DELIVERED)


async def test_what_nobody_decides_expires_and_says_so(office: Office) -> None:
    one = send()
    (action,) = await park(office, one)
    office.clock.leap(hours=72, seconds=1)
    with pytest.raises(StateConflict, match="expired"):
        await office.decide(action, APPROVED)
    await office.housekeeper().tidy()
    await office.until_state(one.delivery_id, EXPIRED)
    (row,) = await actions(office)
    assert row["decision"] == "expired"
    await office.until_settled()
    assert office.server.requests == []
    assert any("nobody decided in time" in told for told in await office.mail())


async def test_there_is_no_word_on_what_is_not_there(office: Office) -> None:
    with pytest.raises(NotFound) as missing:
        await office.decide(uuid7(), APPROVED)
    assert missing.value.hint


@pytest.mark.parametrize("state", ["accepted", "deferred", "parked", "sending", "delivered"])
async def test_only_what_is_over_and_did_not_arrive_is_sent_again(
    closed: Office, state: str
) -> None:
    sent = await closed.accept(delivery())
    await closed.execute("UPDATE deliveries SET provider_message_id = 'm', state = $1", state)
    with pytest.raises(StateConflict, match=state):
        await closed.resend(sent)


# -- quiet hours -----------------------------------------------------------------------------------


def make_it_quiet(office: Office, *, send_ttl: timedelta = timedelta(hours=24)) -> None:
    """From ten minutes ago for the next two hours."""
    now = datetime.now(UTC)
    start, end = now - timedelta(minutes=10), now + timedelta(hours=2)
    quiet = QuietHours.parse(f"{start:%H:%M}-{end:%H:%M}", ZoneInfo("UTC"))
    office.terms = replace(office.terms, quiet=quiet, send_ttl=send_ttl)


async def test_quiet_hours_defer_what_is_new_and_not_what_answers(closed: Office) -> None:
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


async def test_quiet_hours_never_delete_however_short_a_delivery_lives(closed: Office) -> None:
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
