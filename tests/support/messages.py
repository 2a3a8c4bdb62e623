"""Messages as the Switchboard receives them, and the context of a request."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from butlers.domain.clock import uuid7
from butlers.domain.message import RequestContext


def request_context(text: str = "test") -> RequestContext:
    return RequestContext(
        request_id=uuid7(),
        received_at=datetime.now(UTC),
        source_channel="console",
        source_endpoint_identity="console:owner",
        source_sender_identity="owner",
        source_thread_identity=text,
        sender_roles=("owner",),
    )


def envelope(text: str = "weight 80.4 kg", **changes: Any) -> dict[str, Any]:
    """A good message; ``changes`` replaces whole parts, or fields of them where they are mappings."""
    good: dict[str, Any] = {
        "schema_version": "ingest.v1",
        "source": {
            "channel": "console",
            "provider": "console",
            "endpoint_identity": "console:owner",
        },
        "event": {
            "external_event_id": secrets.token_hex(8),
            "observed_at": datetime.now(UTC).isoformat(),
        },
        "sender": {"identity": "owner"},
        "payload": {"normalized_text": text},
    }
    for part, change in changes.items():
        known = good.get(part)
        good[part] = (
            {**known, **change}
            if isinstance(known, dict) and isinstance(change, Mapping)
            else change
        )
    return good
