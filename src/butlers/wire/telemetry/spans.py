"""Spans: pieces of work with a name, a start, an end and a result.

A span is a trace context for the work inside it, and adds fields to its log lines. It is recorded only when
telemetry is on.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from uuid import UUID

from structlog.contextvars import bind_contextvars, get_contextvars, reset_contextvars

from butlers.domain.caller import Caller, CallerKind
from butlers.domain.json_safe import text_safe
from butlers.domain.redaction import redactor
from butlers.domain.session import SessionRequest, SessionResult
from butlers.domain.trace import TraceContext, current_trace, in_trace
from butlers.wire.telemetry.backend import (
    Recording,
    Value,
    count_cost,
    count_tokens,
    installed,
    time_session,
)

LONGEST_ATTRIBUTE = 4_000  # characters

Scrub = Callable[[Any], Any]

_scrub: Scrub = redactor.scrub_data


def set_scrubber(scrub: Scrub) -> None:
    """Replace the function that masks secrets in spans."""
    global _scrub
    _scrub = scrub


def shown_text(text: str) -> str:
    """Scrub a text, escape invalid Unicode (it would fail the whole batch), and cut it.

    Cut after scrubbing: half a secret would not be recognized.
    """
    return _cut(text_safe(str(_scrub(text))))


def shown_value(name: str, value: Any) -> dict[str, str | int]:
    """Return a structured value as attributes: its scrubbed JSON, the size and a digest of that.

    A digest of the unscrubbed value would reveal a short secret.
    """
    text = text_safe(json.dumps(_scrub(value), ensure_ascii=False, default=str))
    raw = text.encode()
    return {
        name: _cut(text),
        f"{name}.bytes": len(raw),
        f"{name}.sha256": hashlib.sha256(raw).hexdigest(),
    }


def _cut(text: str) -> str:
    more = len(text) - LONGEST_ATTRIBUTE
    return f"{text[:LONGEST_ATTRIBUTE]}… ({more:,} more characters)" if more > 0 else text


# -- spans ---------------------------------------------------------------------------------------


P = ParamSpec("P")
R = TypeVar("R")

LONGEST_NAME = 100

# Sessions in progress. Their calls arrive over HTTP, possibly without a trace.
_sessions: dict[UUID, TraceContext] = {}


class Span:
    """Use it as ``with span(...) as opened:``, or as a decorator of an async function."""

    serves = False  # True: the server side of a call

    def __init__(
        self, name: str, attributes: Mapping[str, Value | None] | None = None, **logged: str | None
    ) -> None:
        self.name = name
        self._given = dict(attributes or {})
        self._logged = {key: value for key, value in logged.items() if value is not None}

    def __enter__(self) -> Self:
        parent = self._parent()
        self.context = (parent or TraceContext.new()).child()
        self._trace = in_trace(self.context)
        self._trace.__enter__()
        self._bound: Mapping[str, Token[Any]] = bind_contextvars(**self._logged)
        self._attributes = dict(self._given)
        self._failure: str | None = None
        self._recording: Recording | None = None
        backend = installed()
        if backend is not None and self.context.sampled:
            known = parent if parent is not None and parent.span_id else None
            # The name may contain any tool name that a caller sent.
            name = shown_text(self.name)[:LONGEST_NAME]
            self._recording = backend.start(name, self.context, known, serves=self.serves)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._recording is not None:
                if error is not None:
                    self.set("error.type", type(error).__name__)
                    self.fail(str(error) or type(error).__name__)
                self._recording.end(self._shown(), self._failure)
        finally:
            reset_contextvars(**self._bound)
            self._trace.__exit__(None, None, None)

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Wrap an async function, so that each call runs in its own span."""

        @functools.wraps(function)
        async def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._again():
                return await function(*args, **kwargs)

        return within

    def set(self, name: str, value: Value | None) -> None:
        self._attributes[name] = value

    def fail(self, reason: str) -> None:
        """Mark the span as failed without an exception."""
        self._failure = shown_text(reason) if self._recording is not None else reason

    def _parent(self) -> TraceContext | None:
        return current_trace()

    def _again(self) -> Self:
        """Return a copy that is not entered yet: calls of one function run concurrently."""
        fresh = type(self).__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        return fresh

    def _shown(self) -> dict[str, Value]:
        bound = get_contextvars()
        logged = {f"butlers.{key}": bound.get(key) for key in ("butler", "session")}
        return {
            name: shown_text(value) if isinstance(value, str) else value
            for name, value in {**logged, **self._attributes}.items()
            if value is not None
        }


class ToolSpan(Span):
    """One call of a tool, with scrubbed and cut arguments and result."""

    serves = True

    def __init__(
        self,
        tool: str,
        *,
        butler: str,
        caller: Caller,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            f"butler.tool.{tool}",
            {
                "butlers.tool": tool,
                "butlers.caller.kind": str(caller.kind),
                "butlers.caller.name": caller.name,
                "butlers.request": _text(caller.request_id),
            },
            butler=butler,
            session=_text(caller.session_id),
        )
        self._caller = caller
        self._arguments = arguments
        self._result: Any = None

    def result(self, value: Any) -> None:
        self._result = value

    def _parent(self) -> TraceContext | None:
        """A session's calls belong to the session's trace, whatever trace its CLI sends."""
        sent = current_trace()
        if self._caller.kind is not CallerKind.SESSION or self._caller.session_id is None:
            return sent
        session = _sessions.get(self._caller.session_id)
        if sent is not None and session is not None and sent.trace_id == session.trace_id:
            return sent
        return session

    def _shown(self) -> dict[str, Value]:
        return {
            **super()._shown(),
            **shown_value("butlers.tool.arguments", self._arguments or {}),
            **shown_value("butlers.tool.result", self._result),
        }


class SessionSpan(Span):
    """One session. The calls it makes are its children."""

    def __init__(self, session: SessionRequest, *, butler: str, runtime: str) -> None:
        super().__init__(
            "butler.session",
            {
                "butlers.trigger": session.trigger_source,
                "butlers.runtime": runtime,
                "butlers.request": _text(session.request_id),
            },
            butler=butler,
            session=str(session.session_id),
        )
        self._session = session
        self._runtime = runtime

    def __enter__(self) -> Self:
        super().__enter__()
        _sessions[self._session.session_id] = self.context
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _sessions.pop(self._session.session_id, None)
        super().__exit__(kind, error, trace)

    def ended(self, result: SessionResult, seconds: float, cost_usd: float | None = None) -> None:
        """Record the result as attributes and metrics."""
        self.set("butlers.outcome", str(result.outcome))
        time_session(
            seconds,
            runtime=self._runtime,
            outcome=str(result.outcome),
            trigger=self._session.trigger_source.partition(":")[0],
        )
        usage = result.usage
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens is not None:
                self.set(f"butlers.tokens.{kind}", tokens)
                count_tokens(kind, tokens, runtime=self._runtime)
        if cost_usd is not None:
            self.set("butlers.cost_usd", cost_usd)
            count_cost(cost_usd, runtime=self._runtime)
        if not result.ok:
            self.fail(result.error or str(result.outcome))

    def _parent(self) -> TraceContext | None:
        trace, request = current_trace(), self._session.request
        if trace is None and request is not None and request.trace_id is not None:
            return TraceContext.of_trace(request.trace_id)
        return trace


class _ItemSpan(Span):
    """One attempt at a queue item, in the trace that its payload names."""

    def __init__(self, queue: str, payload: Any, attempt: int) -> None:
        super().__init__(
            f"butler.queue.{queue}", {"butlers.queue": queue, "butlers.attempt": attempt}
        )
        self._payload = payload

    def _parent(self) -> TraceContext | None:
        named = _named_trace(self._payload)
        return None if named is None else TraceContext.of_trace(named)


def span(
    name: str, attributes: Mapping[str, Value | None] | None = None, **logged: str | None
) -> Span:
    """Return a span for any other work. ``logged`` fields are added to every log line inside."""
    return Span(name, attributes, **logged)


def tool_span(
    tool: str, *, butler: str, caller: Caller, arguments: Mapping[str, Any] | None = None
) -> ToolSpan:
    return ToolSpan(tool, butler=butler, caller=caller, arguments=arguments)


def session_span(session: SessionRequest, *, butler: str, runtime: str) -> SessionSpan:
    return SessionSpan(session, butler=butler, runtime=runtime)


def route_span(request_id: UUID, target: str, rule: str) -> Span:
    """Return the span of routing a message to a butler."""
    attributes = {
        "butlers.request": str(request_id),
        "butlers.route.target": target,
        "butlers.route.rule": rule,
    }
    return Span("butler.route", attributes)


def delivery_span(delivery_id: UUID, request_id: UUID | None, channel: str, origin: str) -> Span:
    """Return the span of sending a delivery."""
    attributes = {
        "butlers.delivery": str(delivery_id),
        "butlers.request": _text(request_id),
        "butlers.channel": channel,
        "butlers.origin": origin,
    }
    return Span("butler.delivery", attributes)


def tick_span(butler: str) -> Span:
    return Span("butler.tick", butler=butler)


def item_span(queue: str, payload: Any, attempt: int) -> Span:
    return _ItemSpan(queue, payload, attempt)


def _named_trace(payload: Any) -> str | None:
    """Return the ``trace_id`` of a stored envelope, or of the request inside it."""
    if not isinstance(payload, dict):
        return None
    for holder in (payload, payload.get("request")):
        if isinstance(holder, dict) and isinstance(named := holder.get("trace_id"), str) and named:
            return named
    return None


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)
