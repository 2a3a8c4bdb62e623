"""The meter tells a complete answer from one that was cut."""

from __future__ import annotations

import pytest

from butlers.broker.meter import Meter
from butlers.broker.providers import PROVIDERS

ENDS = {
    "anthropic": b'data: {"type":"message_stop"}\n\n',
    "openai": b'data: {"type":"response.completed","response":{}}\n\n',
    "gemini": b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n',
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_stream_is_complete_with_its_last_event(provider: str) -> None:
    for ends in (b"", ENDS[provider]):
        meter = Meter(PROVIDERS[provider], "text/event-stream; charset=utf-8", 100)
        meter.feed(b'data: {"text":"half a sen')
        meter.feed(b'tence"}\n\n' + ends)
        meter.end()
        assert meter.is_complete is bool(ends)


@pytest.mark.parametrize(("body", "complete"), [(b'{"usage": {}}', True), (b"<html>", False)])
def test_document_is_complete_if_it_is_json(body: bytes, complete: bool) -> None:
    meter = Meter(PROVIDERS["openai"], "application/json", 100)
    meter.feed(body)
    meter.end()
    assert meter.is_complete is complete
