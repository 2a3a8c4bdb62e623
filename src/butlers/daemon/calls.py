"""What happens around every tool call: who may, in which transaction, journaled, audited, and how it fails.

The order is fixed here, once: in-flight count, caller, transaction, journal, the tool, audit, commit,
answer. A gated, replayed or refused call never reaches the function.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import mcp_types as mt
import structlog
from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import Tool, ToolResult
from pydantic import ValidationError as PydanticValidationError

from butlers.daemon.auth import ButlerTokens
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import (
    ButlersError,
    InvalidArguments,
    NotAllowed,
    NotFound,
    ShuttingDown,
)
from butlers.domain.faults import kill_point
from butlers.sessions.guard import LiveSession
from butlers.store import journal
from butlers.store.audit import CallRecord, record_call
from butlers.store.journal import CallKey
from butlers.tools.base import Effect, ToolSpec
from butlers.tools.context import CallContext, Services
from butlers.wire.codec import describe

log = structlog.get_logger()

current_call: ContextVar[CallContext] = ContextVar("current_call")


class InternalError(ButlersError):
    """The butler made a mistake; the log has the details."""

    code = "internal_error"


class InFlight:
    """Counts running calls. Sessions that are being drained may still call; nobody else may begin."""

    def __init__(self) -> None:
        self.count = 0
        self._refused: frozenset[CallerKind] = frozenset()
        self._idle = asyncio.Event()
        self._idle.set()

    def refuse_outsiders(self) -> None:
        self._refused = frozenset({CallerKind.OWNER, CallerKind.PEER})

    def refuse_all(self) -> None:
        self._refused = frozenset(CallerKind)

    async def wait_idle(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        if caller.kind in self._refused:
            raise ShuttingDown
        self.count += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= 1
            if self.count == 0:
                self._idle.set()


@dataclass(frozen=True, slots=True)
class _Call:
    """One call on its way through."""

    spec: ToolSpec
    caller: Caller
    session: LiveSession | None
    arguments: dict[str, Any]
    started: float

    def key(self) -> CallKey | None:
        if (
            self.session is None
            or self.session.calls is None
            or self.spec.effect is not Effect.WRITE
        ):
            return None
        return self.session.calls.next_key(self.spec.name, self.arguments)

    def record(self, *, replayed: bool = False, error: str | None = None) -> CallRecord:
        return CallRecord(
            caller=self.caller,
            tool=self.spec.name,
            arguments=self.arguments,
            ok=error is None,
            duration_ms=round((time.monotonic() - self.started) * 1000),
            replayed=replayed,
            error=error,
        )

    @property
    def audited(self) -> bool:
        return self.spec.effect is Effect.WRITE or self.caller.kind is CallerKind.SESSION


class CallPipeline(Middleware):
    def __init__(
        self,
        services: Services,
        tokens: ButlerTokens,
        specs: Mapping[str, ToolSpec],
        in_flight: InFlight,
    ) -> None:
        self._services = services
        self._tokens = tokens
        self._specs = specs
        self._in_flight = in_flight

    async def on_list_tools(
        self,
        context: MiddlewareContext[mt.ListToolsRequest],
        call_next: CallNext[mt.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        """A caller is shown the tools it may call, and no others."""
        caller, _ = self._tokens.current()
        offered = await call_next(context)
        return [tool for tool in offered if caller.kind in self._specs[tool.name].callers]

    async def on_call_tool(
        self,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        try:
            caller, session = self._tokens.current()
            call = self._prepare(context.message, caller, session)
            with self._in_flight.counted(caller):
                return await self._perform(call, context, call_next)
        except ButlersError as error:
            return as_result(error)

    def _prepare(
        self, message: mt.CallToolRequestParams, caller: Caller, session: LiveSession | None
    ) -> _Call:
        spec = self._specs.get(message.name)
        if spec is None:
            raise NotFound(f"there is no tool {message.name!r}")
        if caller.kind not in spec.callers:
            raise NotAllowed(f"a {caller.kind} may not call {spec.name}")
        return _Call(spec, caller, session, dict(message.arguments or {}), time.monotonic())

    async def _perform(
        self,
        call: _Call,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        try:
            if call.spec.effect is Effect.LONG:
                return await self._run_tool(call, None, context, call_next)
            return await self._run_in_transaction(call, context, call_next)
        except ButlersError as error:
            await self._audit_failure(call, error)
            raise

    async def _run_in_transaction(
        self,
        call: _Call,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        """Effect, journal and audit commit together, before the answer leaves."""
        key = call.key()
        async with self._services.database.transaction() as connection:
            done = await journal.begin(connection, key, call.caller.session_id) if key else None
            if done is not None:
                result = _replay(done.result)
            else:
                scope = CallContext(
                    self._services,
                    call.caller,
                    call.session.request if call.session else None,
                    key,
                    connection,
                )
                result = await self._run_tool(call, scope, context, call_next)
                if key:
                    await journal.record(connection, key, _freeze(result))
            if call.audited:
                await record_call(connection, call.record(replayed=done is not None))
            kill_point(f"{call.spec.name}.before_commit")
        kill_point(f"{call.spec.name}.committed")
        return result

    async def _run_tool(
        self,
        call: _Call,
        scope: CallContext | None,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        request = call.session.request if call.session else None
        token = current_call.set(scope or CallContext(self._services, call.caller, request))
        try:
            return await call_next(context)
        except ValidationError as error:
            raise InvalidArguments(f"{call.spec.name}: {_explain(error)}") from error
        except NotFoundError as error:
            raise NotFound(str(error)) from error
        except ToolError as error:
            raise _domain_error(call.spec, error) from error
        finally:
            current_call.reset(token)

    async def _audit_failure(self, call: _Call, error: ButlersError) -> None:
        """The effect was rolled back; that it was tried is kept, where there is a database to keep it."""
        if not call.audited or error.code == "database_unavailable":
            return
        with suppress(ButlersError):
            async with self._services.database.transaction() as connection:
                await record_call(connection, call.record(error=str(error)))


def as_result(error: ButlersError) -> ToolResult:
    """The MCP face of an error: text for a model, fields for a machine."""
    hint = f"\nhint: {error.hint}" if error.hint else ""
    return ToolResult(
        content=[mt.TextContent(type="text", text=f"{error.message}{hint}")],
        structured_content={"error": error_fields(error)},
        is_error=True,
    )


def error_fields(error: ButlersError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
    }


def _domain_error(spec: ToolSpec, error: ToolError) -> ButlersError:
    cause = error.__cause__
    if isinstance(cause, ButlersError):
        return cause
    log.error("tool crashed", tool=spec.name, exc_info=cause or error)
    return InternalError(f"{spec.name} failed: {type(cause or error).__name__}")


def _explain(error: ValidationError) -> str:
    cause = error.__cause__
    return describe(cause) if isinstance(cause, PydanticValidationError) else str(error)


def _freeze(result: ToolResult) -> dict[str, Any]:
    return {
        "structured": result.structured_content,
        "content": [block.model_dump(mode="json", by_alias=True) for block in result.content],
        "meta": result.meta,
    }


def _replay(recorded: dict[str, Any]) -> ToolResult:
    content = [mt.TextContent.model_validate(block) for block in recorded["content"]]
    return ToolResult(content, recorded["structured"], recorded["meta"])


def bound_error(error: ButlersError) -> ToolError:
    """A domain error on its way out of the protocol library, which logs what it does not know."""
    return ToolError(error.message, log_level=logging.DEBUG)
