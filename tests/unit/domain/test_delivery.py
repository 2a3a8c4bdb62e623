from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.clock import uuid7
from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.errors import InvalidMessage, MessageTooLarge

REQUEST = UUID("01900000-0000-7000-8000-000000000001")
ONE = DeliveryRequest(
    delivery_id=uuid7(),
    origin="health",
    intent=Intent.REPLY,
    channel="console",
    target="console:owner",
    message="Logged.",
    request_id=REQUEST,
)


def test_the_same_notification_of_a_request_is_one_delivery() -> None:
    assert ONE.idempotency_key == replace(ONE, delivery_id=uuid7()).idempotency_key
    assert ONE.idempotency_key == replace(ONE, thread="elsewhere").idempotency_key


def test_any_difference_gives_another_key() -> None:
    others = [
        replace(ONE, request_id=uuid7()),
        replace(ONE, origin="general"),
        replace(ONE, intent=Intent.SEND),
        replace(ONE, channel="telegram"),
        replace(ONE, target="console:guest"),
        replace(ONE, message="Logged!"),
        replace(ONE, ordinal=1),
    ]
    keys = {other.idempotency_key for other in others}
    assert len(keys) == len(others)
    assert ONE.idempotency_key not in keys


def test_deliveries_without_a_request_are_distinct() -> None:
    alone = replace(ONE, request_id=None)
    assert alone.idempotency_key == str(alone.delivery_id)
    assert alone.idempotency_key != replace(alone, delivery_id=uuid7()).idempotency_key


parts = st.text(alphabet='a\x1f"\\,é', max_size=4)


@given(st.tuples(parts, parts), st.tuples(parts, parts))
def test_key_parts_cannot_be_confused(one: tuple[str, str], other: tuple[str, str]) -> None:
    keys = [replace(ONE, target=to, message=text).idempotency_key for to, text in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


# -- reactions -------------------------------------------------------------------------------------

KEY_BEFORE_REACTIONS = "79fe8a62ac98f73b0c8fb222eb75b56d10257d3f7b4f4ad0f5c19add98e11c7c"
REACTION = replace(ONE, intent=Intent.REACT, message="", emoji="👍")


def test_a_reaction_has_an_emoji_in_its_key_and_nothing_else_changes() -> None:
    assert REACTION.idempotency_key != replace(REACTION, emoji="👎").idempotency_key
    # What was queued before there were reactions keeps the key that it was queued under.
    assert ONE.idempotency_key == KEY_BEFORE_REACTIONS


@pytest.mark.parametrize("emoji", ["👍", "❤️", "👨‍👩‍👧‍👦", "1️⃣", "🇨🇭"])
def test_valid_emoji_is_accepted(emoji: str) -> None:
    replace(REACTION, emoji=emoji).check()


@pytest.mark.parametrize("emoji", [None, "", " ", "ok", "👍 👍", "\x00", "\ud800", "👍" * 17])
def test_anything_but_one_emoji_is_rejected(emoji: str | None) -> None:
    with pytest.raises(InvalidMessage) as refused:
        replace(REACTION, emoji=emoji).check()
    assert refused.value.hint


def test_a_reaction_has_no_text_and_a_text_no_emoji() -> None:
    for mixed in (replace(REACTION, message="well done"), replace(ONE, emoji="👍")):
        with pytest.raises(InvalidMessage):
            mixed.check()


@pytest.mark.parametrize("intent", [Intent.SEND, Intent.REPLY])
def test_a_message_without_text_or_beyond_the_limit_is_a_typed_error(intent: Intent) -> None:
    for message, kind in ((" \n", InvalidMessage), ("x" * 1_000_001, MessageTooLarge)):
        with pytest.raises(kind):
            replace(ONE, intent=intent, message=message).check()


def test_delivery_id_contains_the_time_of_the_request() -> None:
    before = datetime.now(UTC)
    made = replace(ONE, delivery_id=uuid7()).made_at
    assert made is not None
    assert abs(made - before) < timedelta(minutes=1)
    assert replace(ONE, delivery_id=uuid4()).made_at is None
