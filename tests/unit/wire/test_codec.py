"""The plain encoder writes what the strict one writes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from butlers.channels.console.connector import parse
from butlers.domain.clock import SystemClock
from butlers.domain.message import Attachment, Event, InboundEnvelope
from butlers.wire.codec import decode, encode, encode_plain


def test_plain_encoding_of_a_message_is_the_strict_one() -> None:
    file = Attachment("text/plain", "a.txt", 3, content="YWJj")
    envelope = parse("weight 80,4 kg – 😀", SystemClock(), attachments=(file,))
    assert encode_plain(envelope) == encode(envelope)
    assert decode(InboundEnvelope, encode_plain(envelope)) == envelope


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_plain_encoding_keeps_the_moment(moment: datetime) -> None:
    event = Event("1", moment)
    assert decode(Event, encode_plain(event)) == event


def test_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode_plain({"x": object()})
