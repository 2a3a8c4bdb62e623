from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.delivery import DeliveryRequest, Intent
from butlers.domain.ids import uuid7

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


def test_whatever_makes_it_another_makes_another_key() -> None:
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


def test_without_a_request_each_is_its_own() -> None:
    alone = replace(ONE, request_id=None)
    assert alone.idempotency_key == str(alone.delivery_id)
    assert alone.idempotency_key != replace(alone, delivery_id=uuid7()).idempotency_key


parts = st.text(alphabet='a\x1f"\\,é', max_size=4)


@given(st.tuples(parts, parts), st.tuples(parts, parts))
def test_no_text_can_pretend_to_be_two(one: tuple[str, str], other: tuple[str, str]) -> None:
    keys = [replace(ONE, target=to, message=text).idempotency_key for to, text in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
