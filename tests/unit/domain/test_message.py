from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.domain.errors import InvalidMessage, MessageTooLarge, UnknownChannel
from butlers.domain.message import (
    MAX_MESSAGE_BYTES,
    Control,
    Event,
    InboundEnvelope,
    Payload,
    PolicyTier,
    Sender,
    Source,
    check_text,
)

GOOD = InboundEnvelope(
    Source("console", "console", "console:owner"),
    Event("e-1", datetime(2026, 5, 3, 9, tzinfo=UTC)),
    Sender("owner"),
    Payload("weight 80.4 kg"),
)


def envelope(**changes: Any) -> InboundEnvelope:
    """The good one with some fields changed, by part: ``event_observed_at=...``."""
    made = GOOD
    for name, value in changes.items():
        part, _, field = name.partition("_")
        made = replace(made, **{part: replace(getattr(made, part), **{field: value})})
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"payload_normalized_text": "x" * MAX_MESSAGE_BYTES},
        {"payload_normalized_text": "🌍 \u202e \x07 ok"},
        {"payload_raw": {"a": [1, 2.5, None, True, {"b": "é"}]}},
        {"payload_raw": {}},
        {"event_observed_at": datetime(2026, 5, 3, tzinfo=timezone(timedelta(hours=14)))},
        {"event_external_event_id": "", "control_idempotency_key": "k"},
        {"event_external_thread_id": "t"},
    ],
)
def test_valid_message_is_accepted(changes: dict[str, Any]) -> None:
    envelope(**changes).check({"console", "email"})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"source_channel": "pigeon"}, UnknownChannel),
        ({"source_channel": ""}, UnknownChannel),
        ({"source_channel": "CONSOLE"}, UnknownChannel),
        ({"payload_normalized_text": ""}, InvalidMessage),
        ({"payload_normalized_text": " \n\t\u2003"}, InvalidMessage),
        ({"payload_normalized_text": "a\0b"}, InvalidMessage),
        ({"payload_normalized_text": "a\ud800"}, InvalidMessage),
        ({"payload_normalized_text": "x" * (MAX_MESSAGE_BYTES + 1)}, MessageTooLarge),
        ({"payload_normalized_text": "é" * (MAX_MESSAGE_BYTES // 2 + 1)}, MessageTooLarge),
        ({"payload_raw": {"a": "\0"}}, InvalidMessage),
        ({"payload_raw": {"a": [{"b": ["\0"]}]}}, InvalidMessage),
        ({"payload_raw": {"\0": 1}}, InvalidMessage),
        ({"payload_raw": {"a": "\udc80"}}, InvalidMessage),
        ({"payload_raw": {"a": "x" * (MAX_MESSAGE_BYTES + 1)}}, MessageTooLarge),
        ({"payload_raw": {"a": list(range(300_000))}}, MessageTooLarge),
        ({"source_provider": "\0"}, InvalidMessage),
        ({"source_endpoint_identity": "\0"}, InvalidMessage),
        ({"sender_identity": "\ud800"}, InvalidMessage),
        ({"event_external_event_id": "\0"}, InvalidMessage),
        ({"event_external_event_id": "e" * 1_001}, InvalidMessage),
        ({"event_external_thread_id": "t" * 1_001}, InvalidMessage),
        ({"event_external_thread_id": "\0"}, InvalidMessage),
        ({"control_idempotency_key": "\0"}, InvalidMessage),
        ({"control_trace_id": "\0"}, InvalidMessage),
        ({"event_observed_at": datetime(2026, 5, 3)}, InvalidMessage),  # noqa: DTZ001
    ],
)
def test_message_that_cannot_be_stored_is_rejected(
    changes: dict[str, Any], error: type[InvalidMessage]
) -> None:
    with pytest.raises(InvalidMessage) as refused:
        envelope(**changes).check({"console", "email"})
    assert type(refused.value) is error
    assert refused.value.hint
    assert not refused.value.retryable


@given(st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF, categories=None)))
def test_accepted_text_can_be_stored(text: str) -> None:
    try:
        check_text(text)
    except InvalidMessage:
        return
    assert text.encode()
    assert "\0" not in text
    assert text.strip()


def test_one_message_has_one_key() -> None:
    assert GOOD.dedupe_key == envelope(payload_normalized_text="other words").dedupe_key
    assert GOOD.dedupe_key != envelope(event_external_event_id="e-2").dedupe_key
    assert GOOD.dedupe_key != envelope(source_endpoint_identity="console:guest").dedupe_key
    assert GOOD.dedupe_key != envelope(source_provider="other").dedupe_key
    assert GOOD.dedupe_key != envelope(source_channel="telegram").dedupe_key
    keyed = envelope(control_idempotency_key="k")
    assert keyed.dedupe_key == replace(keyed, event=Event("e-9", GOOD.event.observed_at)).dedupe_key
    assert keyed.dedupe_key != GOOD.dedupe_key


parts = st.text(alphabet="ab:%3A", min_size=1, max_size=4)


@given(st.tuples(parts, parts, parts), st.tuples(parts, parts, parts))
def test_two_messages_never_share_a_key(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    def key(fields: tuple[str, str, str]) -> str:
        provider, endpoint, event = fields
        return envelope(
            source_provider=provider,
            source_endpoint_identity=endpoint,
            event_external_event_id=event,
        ).dedupe_key

    assert (key(one) == key(other)) == (one == other)


def test_the_content_hash_is_of_the_text_alone() -> None:
    assert GOOD.content_hash == envelope(event_external_event_id="e-2").content_hash
    assert GOOD.content_hash != envelope(payload_normalized_text="other").content_hash


def test_urgent_tier_has_the_lowest_rank() -> None:
    ranked = sorted(PolicyTier, key=lambda tier: tier.rank)
    assert ranked == [PolicyTier.HIGH_PRIORITY, PolicyTier.INTERACTIVE, PolicyTier.DEFAULT]
    assert Control().policy_tier is PolicyTier.DEFAULT


def test_a_source_without_ids_has_no_key() -> None:
    assert envelope(event_external_event_id=" ").dedupe_key is None
    assert envelope(event_external_event_id="", control_idempotency_key="k").dedupe_key
