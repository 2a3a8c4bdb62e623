"""Decisions of the owner: each question is decided once, and an approved call runs exactly once.

A tool with a transaction runs in the transaction of the decision: decision, effect, journal entry and
result commit together. A tool without one is queued with the decision; if the process ends while it runs,
it is not run again and its result says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from butlers.db.database import Connection, Database
from butlers.domain.approval import ActionStatus
from butlers.domain.clock import Clock
from butlers.domain.errors import ButlersError, NotFound, StateConflict
from butlers.domain.faults import kill_point
from butlers.domain.json_safe import json_safe
from butlers.modules.approvals import actions
from butlers.modules.approvals.actions import ActionExpired, AlreadyDecided, PendingAction
from butlers.modules.approvals.events import ApprovalEvent, ApprovalEventKind, log_event
from butlers.modules.approvals.gate import ApprovalGate
from butlers.modules.approvals.questions import outcome_text
from butlers.queue import leased_queue as queue
from butlers.queue.leased_queue import Lease
from butlers.queue.outbox import queue_reply
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect
from butlers.tools.gate import NOT_DECIDED
from butlers.tools.records import undo_request

log = structlog.get_logger()

EXECUTIONS = "approvals"  # the queue of approved calls that run without a transaction
UNDO_WITHIN = timedelta(minutes=10)
_DONE = (ActionStatus.APPROVED, ActionStatus.EXECUTED)


@dataclass(frozen=True, slots=True)
class Decisions:
    butler: str
    database: Database
    clock: Clock
    gate: ApprovalGate
    tells: bool  # there is a Switchboard to tell outcomes through

    async def approve(
        self,
        connection: Connection,
        action_id: UUID,
        by: str,
        *,
        args_hash: str | None = None,
        rule_id: UUID | None = None,
    ) -> list[PendingAction]:
        """Approve a question and run its call. Return it, and others that it decides.

        The same decision twice is one. Raises AlreadyDecided or ActionExpired.
        """
        action = await self._open(connection, action_id, _DONE)
        if action.status in _DONE:
            return [action]
        if args_hash is not None and args_hash != action.args_hash:
            raise StateConflict(
                "the arguments are not those that were shown", hint="look at the action again"
            )
        first = await self._approve(connection, action, by, rule_id)
        others = await actions.lock_group(connection, first) if first.decides_group else []
        return [first, *[await self._approve(connection, other, by, rule_id) for other in others]]

    async def reject(
        self, connection: Connection, action_id: UUID, by: str, reason: str | None
    ) -> list[PendingAction]:
        action = await self._open(connection, action_id, (ActionStatus.REJECTED,))
        if action.status is ActionStatus.REJECTED:
            return [action]
        first = await self._reject(connection, action, by, reason)
        others = await actions.lock_group(connection, first) if first.decides_group else []
        return [first, *[await self._reject(connection, other, by, reason) for other in others]]

    async def expire(self, connection: Connection) -> list[PendingAction]:
        now = self.clock.now()
        late = await actions.expire_actions(connection, now)
        for action in late:
            await self._log(connection, ApprovalEventKind.EXPIRED, action, "clock")
            try:
                await self._refuse(connection, action, NOT_DECIDED)
            except ButlersError as error:  # the others must expire too
                log.warning("expired action not ended", action=str(action.id), error=str(error))
            await self._tell(connection, action)
        return late

    async def undo(self, ctx: CallContext, action_id: UUID) -> PendingAction:
        """Undo an approved call within ten minutes: its changes of records, and what its tool reverses."""
        connection, now = ctx.connection, self.clock.now()
        action = await actions.lock_action(connection, action_id)
        result = action.execution_result or {}
        if action.status is not ActionStatus.EXECUTED or not result.get("success"):
            raise StateConflict(f"the action is {action.status}", hint="it changed nothing")
        if action.undone_at is not None:
            return action
        if action.decided_at is None or now - action.decided_at > UNDO_WITHIN:
            raise StateConflict("ten minutes have passed", hint="change it by hand")
        spec = self.gate.runner.specs.get(action.tool_name)
        undone = await undo_request(connection, action.id)
        if spec is not None and spec.reverse is not None:
            await spec.reverse(replace(ctx, approved=True), result.get("result") or {})
        elif not undone:
            raise StateConflict(
                f"{action.tool_name} cannot be undone", hint="only changes of records can be undone"
            )
        await actions.mark_undone(connection, action.id, now)
        await self._log(connection, ApprovalEventKind.UNDONE, action, ctx.caller.name)
        return replace(action, undone_at=now)

    async def execute(self, lease: Lease) -> Any:
        """Run a queued call that has no transaction of its own."""
        action_id = UUID(lease.payload["action_id"])
        async with self.database.transaction() as connection:
            action = await actions.lock_action(connection, action_id)
            if action.status is not ActionStatus.APPROVED:
                return {"status": str(action.status)}
            fresh = await actions.begin_execution(connection, action_id, self.clock.now())
        kill_point("approvals.begun")
        result = (
            await self._result(None, action)
            if fresh
            else _failure("the butler ended while it ran; whether it happened is not known")
        )
        kill_point("approvals.ran")
        async with self.database.transaction() as connection:
            if await actions.end_execution(connection, action_id, result):
                await self._end(connection, replace(action, status=ActionStatus.EXECUTED), result)
        return {"status": str(ActionStatus.EXECUTED)}

    # -- one action --------------------------------------------------------------------------------

    async def _open(
        self, connection: Connection, action_id: UUID, same: tuple[ActionStatus, ...]
    ) -> PendingAction:
        """Lock a question that may still be decided, or one that has this decision already."""
        action, now = await actions.lock_action(connection, action_id), self.clock.now()
        if action.status in same:
            return action
        if action.status is ActionStatus.EXPIRED or (
            action.status is ActionStatus.PENDING and action.expires_at <= now
        ):
            raise ActionExpired(f"the pending action expired at {action.expires_at:%Y-%m-%d %H:%M}")
        if action.status is not ActionStatus.PENDING:
            raise AlreadyDecided(f"the pending action is {action.status} already")
        return action

    async def _approve(
        self, connection: Connection, action: PendingAction, by: str, rule_id: UUID | None
    ) -> PendingAction:
        spec = self.gate.runner.specs.get(action.tool_name)
        if spec is None:
            raise NotFound(
                f"{self.butler} has no tool {action.tool_name!r} any more", hint="reject the action"
            )
        decided = await self._decide(connection, action, ActionStatus.APPROVED, by, rule_id)
        await self._log(connection, ApprovalEventKind.APPROVED, decided, by)
        if spec.effect in (Effect.LONG, Effect.LOOK):
            payload = {"action_id": str(action.id)}
            await queue.enqueue(connection, EXECUTIONS, str(action.id), payload)
            return decided
        result = await self._result(connection, decided)
        await actions.end_execution(connection, action.id, result)
        done = replace(decided, status=ActionStatus.EXECUTED, execution_result=result)
        await self._end(connection, done, result)
        return done

    async def _reject(
        self, connection: Connection, action: PendingAction, by: str, reason: str | None
    ) -> PendingAction:
        decided = await self._decide(connection, action, ActionStatus.REJECTED, by, None)
        detail = {"reason": reason} if reason else {}
        await self._log(connection, ApprovalEventKind.REJECTED, decided, by, detail)
        await self._refuse(connection, action, f"rejected by {by}")
        await self._tell(connection, decided)
        return decided

    async def _decide(
        self,
        connection: Connection,
        action: PendingAction,
        status: ActionStatus,
        by: str,
        rule_id: UUID | None,
    ) -> PendingAction:
        now = self.clock.now()
        decided = await actions.decide_action(connection, action.id, status, by, now, rule_id)
        if decided is None:
            raise AlreadyDecided("the pending action was decided or expired in the meantime")
        return decided

    async def _result(self, connection: Connection | None, action: PendingAction) -> dict[str, Any]:
        """Run the call. An error of the tool is its result; one that may pass is raised."""
        run = self.gate.runner.run_approved
        origin: dict[str, Any] = {
            "action_id": action.id,
            "session_id": action.session_id,
            "request": action.request,
        }
        try:
            if connection is None:
                found = await run(None, action.tool_name, action.tool_args, **origin)
            else:
                async with connection.transaction():  # a failed call leaves nothing but its error
                    found = await run(connection, action.tool_name, action.tool_args, **origin)
        except ButlersError as error:
            if error.retryable and connection is not None:
                raise
            return _failure(error.message)
        return {"success": True, "result": json_safe(found or {})}

    async def _end(
        self, connection: Connection, action: PendingAction, result: dict[str, Any]
    ) -> None:
        kinds = ApprovalEventKind
        kind = kinds.SUCCEEDED if result["success"] else kinds.FAILED
        detail = {} if result["success"] else {"error": result["error"]}
        await self._log(connection, kind, action, self.butler, detail)
        await self._tell(connection, action, result)

    async def _refuse(self, connection: Connection, action: PendingAction, why: str) -> None:
        await self.gate.runner.refuse(connection, action.tool_name, action.tool_args, why)

    async def _tell(
        self, connection: Connection, action: PendingAction, result: dict[str, Any] | None = None
    ) -> None:
        """Tell the person who asked, in the same thread."""
        if action.request is not None and self.tells:
            text = outcome_text(action, result)
            await queue_reply(connection, self.butler, action.request, text)

    async def _log(
        self,
        connection: Connection,
        kind: ApprovalEventKind,
        action: PendingAction,
        actor: str,
        detail: dict[str, Any] | None = None,
    ) -> None:
        at: datetime = self.clock.now()
        event = ApprovalEvent(
            kind, actor, at, action.id, action.approval_rule_id, detail=detail or {}
        )
        await log_event(connection, self.butler, event)
        log.info(str(kind), tool=action.tool_name, action=str(action.id), actor=actor)


def _failure(error: str) -> dict[str, Any]:
    return {"success": False, "error": error}
