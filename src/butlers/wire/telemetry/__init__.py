"""Spans and metrics, sent to an OTLP collector.

Without an endpoint the OpenTelemetry SDK is not imported, a span is two context variables, and a metric is
one comparison. (The MCP library imports the API package in any case.) With an endpoint, ``export`` sends
batches in the background; while the collector is down, the data is lost.

The tracer provider is private, so that the MCP library's own spans, which would duplicate ours, stay off.
"""

from butlers.wire.telemetry.backend import (
    Backend,
    collecting,
    count_cost,
    count_lease_expiries,
    count_tokens,
    is_on,
    measure_queue,
    time_session,
)
from butlers.wire.telemetry.spans import (
    SessionSpan,
    Span,
    ToolSpan,
    delivery_span,
    item_span,
    route_span,
    session_span,
    set_scrubber,
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
