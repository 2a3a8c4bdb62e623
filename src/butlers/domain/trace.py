"""The W3C trace of a piece of work. The ids exist whether or not telemetry is collected.

The current trace is a context variable: a task inherits the trace it is started in, and a trace that it
enters later is visible to it alone.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

HEADER = "traceparent"
VARIABLE = "TRACEPARENT"

# Version 00 has exactly four fields; a later one may append more (W3C Trace Context, 2.2.2 and 2.2.5).
_TRACEPARENT = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?",
    re.ASCII,
)
_TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NO_TRACE, _NO_SPAN, _SAMPLED = "0" * 32, "0" * 16, 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    trace_id: str
    span_id: str = ""  # empty: the trace has no span yet, so the next span is its root
    sampled: bool = True

    @classmethod
    def new(cls) -> TraceContext:
        return cls(secrets.token_hex(16))

    @classmethod
    def of_trace(cls, trace_id: str) -> TraceContext:
        """Return the trace with this id. A malformed id is hashed, and always gives the same trace."""
        if not _TRACE_ID.fullmatch(trace_id) or trace_id == _NO_TRACE:
            trace_id = hashlib.sha256(trace_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return cls(trace_id)

    @classmethod
    def parse(cls, traceparent: str | None) -> TraceContext:
        """Return the trace of a header or variable, or a new trace if it is missing or malformed."""
        found = _TRACEPARENT.fullmatch(traceparent.strip(" \t")) if traceparent else None
        if found is None or not _is_valid(found):
            return cls.new()
        return cls(found["trace"], found["span"], bool(int(found["flags"], 16) & _SAMPLED))

    @property
    def traceparent(self) -> str:
        span_id = self.span_id or secrets.token_hex(8)
        return f"00-{self.trace_id}-{span_id}-{_SAMPLED if self.sampled else 0:02x}"

    def child(self) -> TraceContext:
        return TraceContext(self.trace_id, secrets.token_hex(8), self.sampled)


def _is_valid(found: re.Match[str]) -> bool:
    version = found["version"]
    if version == "ff" or (version == "00" and found["more"]):
        return False
    return found["trace"] != _NO_TRACE and found["span"] != _NO_SPAN


_current: ContextVar[TraceContext | None] = ContextVar("current_trace", default=None)


def current_trace() -> TraceContext | None:
    return _current.get()


@contextmanager
def in_trace(trace: TraceContext | None) -> Iterator[None]:
    """Make this the current trace while the block lasts; None: no trace."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def traceparent_headers() -> dict[str, str]:
    """Return the headers that continue the current trace in another process."""
    trace = _current.get()
    return {} if trace is None else {HEADER: trace.traceparent}


def traceparent_environment() -> dict[str, str]:
    """Return the environment variables that continue the current trace in a child process."""
    trace = _current.get()
    return {} if trace is None else {VARIABLE: trace.traceparent}
