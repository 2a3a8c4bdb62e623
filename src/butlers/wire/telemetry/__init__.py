"""What happened, how long it took and how much there was of it, told to an OTLP collector.

Without an endpoint nothing of the OpenTelemetry SDK is imported, a span is two context variables, and a
metric is one comparison. (The API package is imported all the same: the MCP library does that.) With one,
``export`` batches and sends in the background; a collector that is away costs what it would have kept.

The tracer provider is private: the MCP library's own spans, which would say again what ours say, find none
and stay off.
"""

from butlers.wire.telemetry.backend import Backend, is_on
from butlers.wire.telemetry.lifecycle import collecting
from butlers.wire.telemetry.metrics import (
    count_cost,
    count_lease_expiries,
    count_tokens,
    measure_queue,
    time_session,
)
from butlers.wire.telemetry.shown import set_scrubber
from butlers.wire.telemetry.spans import (
    SessionSpan,
    Span,
    ToolSpan,
    delivery_span,
    item_span,
    route_span,
    session_span,
    span,
    tick_span,
    tool_span,
)

__all__ = [
    "Backend",
    "SessionSpan",
    "Span",
    "ToolSpan",
    "collecting",
    "count_cost",
    "count_lease_expiries",
    "count_tokens",
    "delivery_span",
    "is_on",
    "item_span",
    "measure_queue",
    "route_span",
    "session_span",
    "set_scrubber",
    "span",
    "tick_span",
    "time_session",
    "tool_span",
]
