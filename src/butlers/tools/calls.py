"""The pipeline around every tool call: permission, transaction, journal, audit, errors.

The order is fixed: caller, in-flight count, transaction, journal, tool, audit, commit, answer. A gated,
replayed or rejected call does not reach the tool's function.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import mcp_types as mt
import structlog
from fastmcp.exceptions import ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import Tool, ToolResult
from mcp import MCPError

from butlers.db.database import Connection
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import (
    ButlersError,
    DatabaseUnavailable,
    InvalidArguments,
    NotAllowed,
    NotFound,
    ShuttingDown,
)
from butlers.domain.faults import kill_point
from butlers.domain.json_safe import json_safe, text_safe
from butlers.domain.redaction import redactor
from butlers.queue import journal
from butlers.queue.journal import CallKey
from butlers.sessions.guard import LiveSession
from butlers.tools.call_results import (
    CallRecord,
    as_result,
    crash_error,
    domain_error,
    error_fields,
    explain,
    freeze,
    record_call,
    replay,
    usage,
)
from butlers.tools.callers import ButlerTokens, InFlight
from butlers.tools.context import CallContext, Services
from butlers.tools.declaration import Effect, ToolSpec
from butlers.wire.telemetry import tool_span

log = structlog.get_logger()

current_call: ContextVar[CallContext] = ContextVar("current_call")


@dataclass(frozen=True, slots=True)
class _Call:
    """One call in the pipeline."""

    name: str  # of the tool or one of its aliases
    spec: ToolSpec
    caller: Caller
    session: LiveSession | None
    arguments: dict[str, Any]
    started: float
    sensitive: frozenset[str] = frozenset()  # arguments whose values are masked in the audit

    @contextmanager
    def key(self) -> Iterator[CallKey | None]:
        """Reserve the call's journal key, and give it back if the call fails."""
        counter = self.session.calls if self.session else None
        if counter is None or self.spec.effect is not Effect.WRITE:
            yield None
            return
        key = counter.next_key(self.spec.name, self.arguments)
        try:
            yield key
        except BaseException:
            counter.give_back(key)
            raise

    def record(
        self,
        result: ToolResult | None = None,
        *,
        replayed: bool = False,
        error: str | None = None,
    ) -> CallRecord:
        answer = freeze(result) if result is not None else None
        written = json.dumps(answer, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
        return CallRecord(
            caller=self.caller,
            tool=self.spec.name,
            arguments=json_safe(self.arguments, self.sensitive),
            ok=error is None,
            duration_ms=round((time.monotonic() - self.started) * 1000),
            replayed=replayed,
            error=error and text_safe(redactor.scrub(error)),
            result_digest=None if answer is None else hashlib.sha256(written).hexdigest(),
            result_bytes=None if answer is None else len(written),
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
        tools: Mapping[str, Tool],
        in_flight: InFlight,
    ) -> None:
        self._services = services
        self._tokens = tokens
        self._specs = specs
        self._tools = tools
        self._in_flight = in_flight
        self._offered: Sequence[Tool] | None = None

    async def on_initialize(
        self,
        context: MiddlewareContext[mt.InitializeRequest],
        call_next: CallNext[mt.InitializeRequest, mt.InitializeResult | None],
    ) -> mt.InitializeResult | None:
        self._admit()
        return await call_next(context)

    async def on_discover(
        self,
        context: MiddlewareContext[mt.DiscoverRequest],
        call_next: CallNext[mt.DiscoverRequest, mt.DiscoverResult | dict[str, Any]],
    ) -> mt.DiscoverResult | dict[str, Any]:
        self._admit()
        return await call_next(context)

    def _admit(self) -> None:
        """Reject a connection of a caller whose calls would all be rejected."""
        caller, _ = self._tokens.current()
        try:
            self._in_flight.admit(caller)
        except ShuttingDown as error:
            raise MCPError(mt.INTERNAL_ERROR, error.message, error_fields(error)) from error

    async def on_list_tools(
        self,
        context: MiddlewareContext[mt.ListToolsRequest],
        call_next: CallNext[mt.ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        """List the tools that the caller may call."""
        caller, session = self._tokens.current()
        # The protocol library lists the tools before each call, so the full list is cached.
        if self._offered is None:
            self._offered = await call_next(context)
        return [
            tool
            for tool in self._offered
            if self._may_call(caller, session, tool.name)
            and self._services.modules.is_enabled(self._specs[tool.name].name)
        ]

    def _may_call(self, caller: Caller, session: LiveSession | None, name: str) -> bool:
        spec = self._specs[name]
        return caller.kind in spec.callers and (session is None or session.may_call(spec.name))

    async def on_call_tool(
        self,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        try:
            caller, session = self._tokens.current()
            tool, butler = context.message.name, self._services.config.name
            arguments = self._shown(context.message)
            with tool_span(tool, butler=butler, caller=caller, arguments=arguments) as span:
                try:
                    call = self._prepare(context.message, caller, session)
                except ButlersError as error:
                    await self._audit_refusal(context.message, caller, error)
                    raise
                with self._in_flight.counted(caller):
                    result = await self._perform(call)
                span.result(result.structured_content)
                return result
        except ButlersError as error:
            return as_result(error)
        except Exception as error:  # the edge: the log has the cause, the caller only the type
            log.exception("call crashed", tool=context.message.name)
            return as_result(crash_error(context.message.name, error))

    def _prepare(
        self, message: mt.CallToolRequestParams, caller: Caller, session: LiveSession | None
    ) -> _Call:
        spec = self._specs.get(message.name)
        if spec is None:
            raise NotFound(
                f"there is no tool {message.name!r}", hint=self._nearest(message, caller)
            )
        if session is not None and not session.begun:
            raise NotAllowed("this session has not begun", hint="wait for its prompt")
        if not self._may_call(caller, session, message.name):
            log.warning("call rejected", tool=spec.name, caller=f"{caller.kind} {caller.name}")
            raise NotAllowed(
                f"the {caller.kind} may not call {spec.name}",
                hint=f"it is for: {', '.join(sorted(spec.callers))}",
            )
        self._services.modules.ensure_enabled(spec.name)
        sensitive = self._services.modules.sensitive_arguments(spec.name)
        arguments = dict(message.arguments or {})
        return _Call(message.name, spec, caller, session, arguments, time.monotonic(), sensitive)

    async def _audit_refusal(
        self, message: mt.CallToolRequestParams, caller: Caller, error: ButlersError
    ) -> None:
        """Audit a call that a session may not make."""
        if caller.kind is not CallerKind.SESSION:
            return
        record = CallRecord(
            caller,
            text_safe(message.name)[:200],
            self._shown(message),
            False,
            0,
            error=text_safe(redactor.scrub(str(error))),
        )
        with suppress(ButlersError):
            async with self._services.database.transaction() as connection:
                await record_call(connection, record)

    def _shown(self, message: mt.CallToolRequestParams) -> dict[str, Any]:
        """Return the arguments with those masked that the module declares sensitive."""
        spec = self._specs.get(message.name)
        modules = self._services.modules
        sensitive = modules.sensitive_arguments(spec.name) if spec else frozenset[str]()
        return json_safe(dict(message.arguments or {}), sensitive)

    def _nearest(self, message: mt.CallToolRequestParams, caller: Caller) -> str:
        offered = [name for name, spec in self._specs.items() if caller.kind in spec.callers]
        near = get_close_matches(message.name, offered, n=3) or sorted(offered)
        return f"tools: {', '.join(near)}"

    async def _perform(self, call: _Call) -> ToolResult:
        if call.spec.outside and call.session:
            call.session.outside.add(call.spec.name)
        try:
            if call.spec.effect in (Effect.LONG, Effect.LOOK):
                return await self._run_long(call)
            return await self._run_in_transaction(call)
        except ButlersError as error:
            await self._audit_failure(call, error)
            raise
        except asyncio.CancelledError:
            await asyncio.shield(self._audit_alone(call, call.record(error="cancelled")))
            raise

    async def _run_long(self, call: _Call) -> ToolResult:
        """Run a tool without a transaction, and audit it afterwards."""
        result = await self._run_tool(call)
        await self._audit_alone(call, call.record(result))
        return result

    async def _run_in_transaction(self, call: _Call) -> ToolResult:
        """Commit effect, journal and audit together, before the answer is sent."""
        with call.key() as key:
            return await self._commit(call, key)

    async def _commit(self, call: _Call, key: CallKey | None) -> ToolResult:
        reads = call.spec.effect is Effect.READ
        readonly = reads and not call.audited
        async with self._services.database.transaction(readonly=readonly) as connection:
            done = await journal.begin(connection, key, call.caller.session_id) if key else None
            if done is not None:
                result = replay(done.result)
            else:
                result = await self._run_tool(call, key, connection)
                if key:
                    await journal.record(connection, key, freeze(result))
            if call.audited:
                record = call.record(result, replayed=done is not None)
                await record_call(connection, record, durable=not reads)
            kill_point(f"{call.spec.name}.before_commit")
        kill_point(f"{call.spec.name}.committed")
        return result

    async def _run_tool(
        self, call: _Call, key: CallKey | None = None, connection: Connection | None = None
    ) -> ToolResult:
        session = call.session
        request, outside = (session.request, session.outside) if session else (None, ())
        context = CallContext(self._services, call.caller, request, key, connection, outside)
        token = current_call.set(context)
        try:
            # Not through the protocol library, which would look the tool up again.
            return await self._tools[call.name].run(call.arguments)
        except ValidationError as error:
            reason = f"{call.spec.name}: {explain(error)}"
            if call.spec.on_invalid is not None:
                call.spec.on_invalid(context, call.arguments, reason)
            raise InvalidArguments(reason, hint=usage(call.spec)) from error
        except Exception as error:
            raise domain_error(call.spec, error) from error
        finally:
            current_call.reset(token)

    async def _audit_failure(self, call: _Call, error: ButlersError) -> None:
        """Audit a failed call, whose effect was rolled back, if the database is available."""
        if not isinstance(error, DatabaseUnavailable):
            await self._audit_alone(call, call.record(error=str(error)))

    async def _audit_alone(self, call: _Call, record: CallRecord) -> None:
        if not call.audited:
            return
        with suppress(ButlersError):
            async with self._services.database.transaction() as connection:
                await record_call(connection, record)
