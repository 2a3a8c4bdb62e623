"""The pipeline around every tool call: permission, transaction, journal, audit, errors.

The order is fixed: caller, in-flight count, transaction, journal, gate, tool, audit, commit, answer. A
gated, replayed or rejected call does not reach the tool's function.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from difflib import get_close_matches
from typing import Any
from uuid import UUID

import mcp_types as mt
import structlog
from fastmcp.exceptions import ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import Tool, ToolResult
from mcp import MCPError

from butlers.db.database import Connection, set_provenance
from butlers.domain.approval import AskReason, Question
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.errors import (
    ButlersError,
    DatabaseUnavailable,
    InvalidArguments,
    NeedsApproval,
    NotAllowed,
    NotFound,
    ShuttingDown,
)
from butlers.domain.faults import kill_point
from butlers.domain.json_safe import json_safe, text_safe
from butlers.domain.message import RequestContext
from butlers.domain.queues import SWITCHBOARD
from butlers.domain.redaction import redactor
from butlers.queue import journal
from butlers.queue.journal import CallKey, hash_arguments
from butlers.sessions.guard import LiveSession
from butlers.tools.call_results import (
    CallRecord,
    answer_of,
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
from butlers.tools.declaration import SHARED_PREFIX, Effect, ToolSpec
from butlers.tools.gate import MAX_DELETED, CallGate
from butlers.tools.pipeline_call import PipelineCall
from butlers.tools.result_pages import in_pages
from butlers.wire.telemetry import is_on as telemetry_is_on
from butlers.wire.telemetry import tool_span

log = structlog.get_logger()

current_call: ContextVar[CallContext] = ContextVar("current_call")


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
        self._gate = services.find(CallGate)
        if self._gate is not None:
            self._gate.attach(self)

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        return self._specs

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
        if caller.kind is CallerKind.PEER:
            # Butlers reach each other through the Switchboard alone.
            if not self._is_between_switchboard(caller):
                return False
            return name.startswith(SHARED_PREFIX) or CallerKind.PEER in spec.callers
        if name.startswith(SHARED_PREFIX) or caller.kind not in spec.callers:
            return False
        return session is None or session.may_call(spec.name)

    def _is_between_switchboard(self, caller: Caller) -> bool:
        return SWITCHBOARD in (caller.name, self._services.config.name)

    async def on_call_tool(
        self,
        context: MiddlewareContext[mt.CallToolRequestParams],
        call_next: CallNext[mt.CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        try:
            caller, session = self._tokens.current()
        except ButlersError as error:
            return as_result(error)
        return await self._serve(context.message, caller, session)

    async def call_in_process(
        self, session: LiveSession, tool: str, arguments: dict[str, Any]
    ) -> Any:
        """Call a tool for a session that runs in this process, as if it had called over MCP.

        The arguments and the result are JSON, and an error is the one that a client would get.
        """
        try:
            plain = json.loads(json.dumps(arguments, allow_nan=False))
        except (ValueError, TypeError) as error:
            raise InvalidArguments(f"the arguments are not JSON: {error}") from error
        session.connected = True
        message = mt.CallToolRequestParams(name=tool, arguments=plain)
        return answer_of(await self._serve(message, session.caller, session))

    async def _serve(
        self, message: mt.CallToolRequestParams, caller: Caller, session: LiveSession | None
    ) -> ToolResult:
        try:
            tool, butler = message.name, self._services.config.name
            arguments = self._shown(message) if telemetry_is_on() else None
            with tool_span(tool, butler=butler, caller=caller, arguments=arguments) as span:
                try:
                    call = self._prepare(message, caller, session)
                except ButlersError as error:
                    await self._audit_refusal(message, caller, error)
                    raise
                with self._in_flight.counted(caller):
                    result = await self._perform(call)
                if session is not None and not call.spec.is_read_only:
                    session.changed = True
                    session.note_outage(None)
                span.result(result.structured_content)
                return result if session is None else in_pages(session, result)
        except ButlersError as error:
            return as_result(error)
        except Exception as error:  # the edge: the log has the cause, the caller only the type
            log.exception("call crashed", tool=message.name)
            return as_result(crash_error(message.name, error))

    def _prepare(
        self, message: mt.CallToolRequestParams, caller: Caller, session: LiveSession | None
    ) -> PipelineCall:
        spec = self._specs.get(message.name)
        if spec is None:
            raise NotFound(
                f"there is no tool {message.name!r}", hint=self._nearest(message, caller)
            )
        if session is not None and not session.begun:
            raise NotAllowed("this session has not begun", hint="wait for its prompt")
        if not self._may_call(caller, session, message.name):
            log.warning("call rejected", tool=spec.name, caller=f"{caller.kind} {caller.name}")
            if caller.kind is CallerKind.PEER and not self._is_between_switchboard(caller):
                raise NotAllowed(
                    f"only the Switchboard may call another butler, not {caller.name}",
                    hint="ask for data with ask_butler, which goes through the Switchboard",
                )
            raise NotAllowed(
                f"the {caller.kind} may not call {spec.name}",
                hint=f"it is for: {', '.join(sorted(spec.callers))}",
            )
        if session is not None:
            session.count_call()
        self._services.modules.ensure_enabled(spec.name)
        sensitive = self._services.modules.sensitive_arguments(spec.name)
        arguments = dict(message.arguments or {})
        return PipelineCall(
            message.name, spec, caller, session, arguments, time.monotonic(), sensitive
        )

    async def _audit_refusal(
        self, message: mt.CallToolRequestParams, caller: Caller, error: ButlersError
    ) -> None:
        """Audit a call that a session may not make."""
        if caller.kind is not CallerKind.SESSION:
            return
        record = CallRecord(
            caller,
            text_safe(redactor.scrub(message.name))[:200],
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

    async def _perform(self, call: PipelineCall) -> ToolResult:
        if call.spec.outside and call.session:
            call.session.outside.add(call.spec.name)
        try:
            try:
                return await self._run(call)
            except NeedsApproval as error:
                if self._gate is None or call.session is None:
                    raise
                # The transaction is rolled back: of the call nothing stays but the question.
                return await self._run(call, AskReason(error.action, error.why))
        except ButlersError as error:
            await self._audit_failure(call, error)
            raise
        except asyncio.CancelledError:
            await asyncio.shield(self._audit_alone(call, call.record(error="cancelled")))
            raise

    async def _run(self, call: PipelineCall, reason: AskReason | None = None) -> ToolResult:
        """Run the tool. With a reason to ask, run it only if a standing rule admits it; else ask."""
        if reason is None and self._gate is not None and call.session is not None:
            reason = self._gate.reason(call.spec)
        if call.spec.effect in (Effect.LONG, Effect.LOOK):
            return await self._run_long(call, reason)
        with call.key() as key:
            return await self._commit(call, key, reason)

    async def _run_long(self, call: PipelineCall, reason: AskReason | None) -> ToolResult:
        """Run a tool without a transaction, and audit it afterwards."""
        context, waiting = self._context(call), None
        if reason is not None:
            async with self._services.database.transaction() as connection:
                waiting = await self._ask(connection, call, context, reason)
            context = replace(context, approved=waiting is None)
        result = waiting or await self._run_tool(call, context)
        await self._audit_alone(call, call.record(result))
        return result

    async def _ask(
        self, connection: Connection, call: PipelineCall, context: CallContext, reason: AskReason
    ) -> ToolResult | None:
        """Return None if a standing rule admits the call, else ask the owner and return that it waits."""
        assert self._gate is not None
        self._check_arguments(call)
        question = Question(
            call.spec.name,
            call.arguments,
            reason,
            context.provenance,
            context.request,
            reversible=self._is_reversible(call.spec),
        )
        if await self._gate.admit(connection, question):
            return None
        waiting = (await self._gate.ask(connection, question)).as_dict()
        text = mt.TextContent(type="text", text=json.dumps(waiting, ensure_ascii=False))
        return ToolResult(content=[text], structured_content=waiting)

    def _is_reversible(self, spec: ToolSpec) -> bool:
        """Return whether an approved call of the tool can be undone."""
        keeps_records = spec.effect is Effect.WRITE and self._services.modules.keeps_records(
            spec.name
        )
        return keeps_records or spec.keeps_changes or spec.reverse is not None

    def _check_arguments(self, call: PipelineCall) -> None:
        """Refuse a call that would fail after the owner has approved it."""
        schema = self._tools[call.name].parameters
        missing = [name for name in schema.get("required", ()) if name not in call.arguments]
        unknown = sorted(set(call.arguments) - set(schema.get("properties", {})))
        if missing or (unknown and call.spec.parameters is None):
            what = f"no {missing[0]!r}" if missing else f"no argument {unknown[0]!r}"
            raise InvalidArguments(f"{call.spec.name}: there is {what}", hint=usage(call.spec))

    async def _commit(
        self, call: PipelineCall, key: CallKey | None, reason: AskReason | None
    ) -> ToolResult:
        """Commit effect, journal and audit together, before the answer is sent."""
        reads = call.spec.effect is Effect.READ
        readonly = reads and not call.audited and reason is None
        async with self._services.database.transaction(readonly=readonly) as connection:
            context = self._context(call, key, connection)
            done = None
            if key:
                done = await journal.begin(connection, key, context.provenance)
            elif not reads:
                await set_provenance(connection, context.provenance)
            if done is not None:
                result = replay(done.result)
            else:
                result = await self._run_or_ask(connection, call, context, reason)
                deleted = 0
                if key:
                    deleted = await journal.record(connection, key, freeze(result))
                elif call.session is not None and not reads:
                    deleted = await journal.count_deleted(connection)
                if reason is None and call.session is not None:
                    _check_deletions(call.spec, deleted)
            if call.audited:
                record = call.record(result, replayed=done is not None)
                await record_call(connection, record, durable=not reads)
            kill_point(f"{call.spec.name}.before_commit")
        kill_point(f"{call.spec.name}.committed")
        return result

    async def _run_or_ask(
        self,
        connection: Connection,
        call: PipelineCall,
        context: CallContext,
        reason: AskReason | None,
    ) -> ToolResult:
        if reason is not None:
            waiting = await self._ask(connection, call, context, reason)
            if waiting is not None:
                return waiting
            context = replace(context, approved=True)
        return await self._run_tool(call, context)

    async def run_approved(
        self,
        connection: Connection | None,
        tool: str,
        arguments: dict[str, Any],
        *,
        action_id: UUID,
        session_id: UUID | None,
        request: RequestContext | None,
    ) -> Any:
        """Run an approved call, as ``ToolRunner`` says."""
        caller = Caller(CallerKind.SESSION, self._services.config.name, session_id, action_id)
        call = PipelineCall(tool, self._specs[tool], caller, None, arguments, time.monotonic())
        key = CallKey(action_id, tool, hash_arguments(arguments), 0)
        context = CallContext(self._services, caller, request, key, connection, approved=True)
        if connection is not None:
            await journal.begin(connection, key, context.provenance)
        result = await self._run_tool(call, context)
        if connection is not None:
            await journal.record(connection, key, freeze(result))
            await record_call(connection, call.record(result))
        return result.structured_content

    async def refuse(
        self, connection: Connection, tool: str, arguments: dict[str, Any], why: str
    ) -> None:
        spec = self._specs.get(tool)
        if spec is not None and spec.on_refused is not None:
            caller = Caller(CallerKind.OWNER, "owner")
            context = CallContext(self._services, caller, None, None, connection, approved=True)
            await spec.on_refused(context, arguments, why)

    def _context(
        self, call: PipelineCall, key: CallKey | None = None, connection: Connection | None = None
    ) -> CallContext:
        live = call.session
        if live is None:
            return CallContext(self._services, call.caller, None, key, connection)
        return CallContext(
            self._services,
            call.caller,
            live.request,
            key,
            connection,
            live.outside,
            pages=live.pages,
        )

    async def _run_tool(self, call: PipelineCall, context: CallContext) -> ToolResult:
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

    async def _audit_failure(self, call: PipelineCall, error: ButlersError) -> None:
        """Audit a failed call, whose effect was rolled back, if the database is available."""
        if call.session is not None and isinstance(error, DatabaseUnavailable):
            call.session.note_outage(f"{call.spec.name}: {error.message}")
        if not isinstance(error, DatabaseUnavailable):
            await self._audit_alone(call, call.record(error=str(error)))

    async def _audit_alone(self, call: PipelineCall, record: CallRecord) -> None:
        if not call.audited:
            return
        with suppress(ButlersError):
            async with self._services.database.transaction() as connection:
                await record_call(connection, record)


def _check_deletions(spec: ToolSpec, deleted: int) -> None:
    """Raise NeedsApproval if the call has deleted more than a few records."""
    if deleted > MAX_DELETED:
        action = f"delete {deleted} records"
        raise NeedsApproval(
            f"{spec.name} would {action}; a session may delete at most {MAX_DELETED} at once",
            action=action,
            why=f"more than {MAX_DELETED} records would be deleted",
        )
