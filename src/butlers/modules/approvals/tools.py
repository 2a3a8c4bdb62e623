"""The tools of the approvals module, for the owner. No session can call one.

The Switchboard is the only peer that may call them: it passes on decisions that the owner sends by chat.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.approval import ActionStatus
from butlers.domain.caller import OWNER_AND_PEERS, CallerKind
from butlers.domain.clock import uuid7
from butlers.domain.errors import InvalidArguments, NotAllowed, NotFound
from butlers.domain.queues import SWITCHBOARD
from butlers.modules.approvals import actions, rules
from butlers.modules.approvals.actions import LIST_HINT, PendingAction
from butlers.modules.approvals.decisions import Decisions
from butlers.modules.approvals.events import (
    ApprovalEvent,
    ApprovalEventKind,
    events_of,
    log_event,
)
from butlers.modules.approvals.rules import ApprovalRule, Constraint
from butlers.modules.approvals.suggestions import (
    LOOK_BACK,
    narrowest_rule,
    preview,
    repeated_decisions,
)
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, tool

BY_CHAT = "owner (chat)"
Limit = Annotated[int, Field(ge=1, le=500)]
ActionRef = Annotated[str, Field(min_length=6, max_length=36, description="id, or its code")]
Text = Annotated[str, Field(max_length=500)]


@tool(callers=OWNER_AND_PEERS, effect=Effect.READ)
async def list_pending_actions(
    ctx: CallContext, status: ActionStatus | None = None, limit: Limit = 50
) -> dict[str, Any]:
    """List actions, newest first: those that wait, or those with another status."""
    _decider(ctx)
    found = await actions.list_actions(ctx.connection, status or ActionStatus.PENDING, limit)
    now = ctx.clock.now()
    shown = [one.shown(now) for one in found]
    return {"actions": [one for one in shown if status or one["status"] is ActionStatus.PENDING]}


@tool(callers=OWNER_AND_PEERS, effect=Effect.READ)
async def show_pending_action(ctx: CallContext, action_id: ActionRef) -> dict[str, Any]:
    """Show one action with its exact arguments, its result and its log."""
    _decider(ctx)
    action = await _find(ctx, action_id)
    events = await events_of(ctx.connection, action.id)
    return {**action.shown(ctx.clock.now()), "events": events}


@tool(callers=OWNER_AND_PEERS)
async def approve_action(
    ctx: CallContext,
    action_id: ActionRef,
    create_rule: bool = False,
    args_hash: str | None = None,
) -> dict[str, Any]:
    """Approve an action and run it, once, with the arguments that were shown.

    create_rule: also allow such calls from now on, with the narrowest rule that admits this one.
    """
    by, decisions = _decider(ctx), ctx.service(Decisions)
    action = await _find(ctx, action_id)
    rule_id = None
    if create_rule and action.status is ActionStatus.PENDING:
        rule_id = (await _rule_from(ctx, action, f"Always: {action.agent_summary}", by)).id
    decided = await decisions.approve(
        ctx.connection, action.id, by, args_hash=args_hash, rule_id=rule_id
    )
    return _decided(ctx, decided)


@tool(callers=OWNER_AND_PEERS)
async def reject_action(
    ctx: CallContext, action_id: ActionRef, reason: Text | None = None
) -> dict[str, Any]:
    """Reject an action: it is never done."""
    by, action = _decider(ctx), await _find(ctx, action_id)
    decided = await ctx.service(Decisions).reject(ctx.connection, action.id, by, reason)
    return _decided(ctx, decided)


@tool(callers=OWNER_AND_PEERS)
async def undo_action(ctx: CallContext, action_id: ActionRef) -> dict[str, Any]:
    """Undo an approved action within ten minutes, if it can be undone."""
    _decider(ctx)
    action = await _find(ctx, action_id)
    undone = await ctx.service(Decisions).undo(ctx, action.id)
    return undone.shown(ctx.clock.now())


@tool(callers=OWNER_AND_PEERS, effect=Effect.READ)
async def pending_action_count(ctx: CallContext) -> dict[str, Any]:
    """Count the actions that wait for a decision."""
    return {"pending": await actions.count_open(ctx.connection)}


@tool(callers=OWNER_AND_PEERS)
async def expire_stale_actions(ctx: CallContext) -> dict[str, Any]:
    """Expire actions that were not decided in time. The butler also does this by itself."""
    _decider(ctx)
    late = await ctx.service(Decisions).expire(ctx.connection)
    return {"expired": [str(action.id) for action in late]}


@tool(callers=OWNER_AND_PEERS, effect=Effect.READ)
async def list_executed_actions(ctx: CallContext, limit: Limit = 50) -> dict[str, Any]:
    """List approved actions that were done, newest first, with their results."""
    _decider(ctx)
    found = await actions.list_actions(ctx.connection, ActionStatus.EXECUTED, limit)
    now = ctx.clock.now()
    return {"actions": [one.shown(now) for one in found]}


@tool(callers=OWNER_AND_PEERS)
async def create_approval_rule(
    ctx: CallContext,
    tool_name: str,
    arg_constraints: dict[str, Any],
    description: Text,
    expires_at: datetime | None = None,
    max_uses: Annotated[int, Field(ge=1)] | None = None,
    trusted_only: bool = True,
) -> dict[str, Any]:
    """Allow calls of a tool without asking: {"argument": {"type": "exact", "value": …}}, or the type
    "pattern" or "any". A call with an argument that the rule does not name is not allowed.

    trusted_only = false also allows calls of sessions that have read text of other people.
    """
    by, now = _decider(ctx), ctx.clock.now()
    if tool_name not in ctx.service(Decisions).gate.runner.specs:
        raise NotFound(f"{ctx.butler} has no tool {tool_name!r}")
    if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
        raise InvalidArguments("expires_at must be in the future and have a UTC offset")
    rule = ApprovalRule(
        id=uuid7(),
        tool_name=tool_name,
        constraints={name: Constraint.parse(name, one) for name, one in arg_constraints.items()},
        description=description,
        created_at=now,
        expires_at=expires_at,
        max_uses=max_uses,
        trusted_only=trusted_only,
    )
    return await _store(ctx, rule, by)


@tool(callers=OWNER_AND_PEERS)
async def create_rule_from_action(
    ctx: CallContext, action_id: ActionRef, description: Text | None = None
) -> dict[str, Any]:
    """Make the narrowest rule that admits the call of an action again."""
    by, action = _decider(ctx), await _find(ctx, action_id)
    rule = await _rule_from(ctx, action, description or f"Always: {action.agent_summary}", by)
    return rule.as_dict()


@tool(callers=OWNER_AND_PEERS, effect=Effect.READ)
async def list_approval_rules(
    ctx: CallContext, tool_name: str | None = None, include_inactive: bool = False
) -> dict[str, Any]:
    """List the standing rules, newest first."""
    _decider(ctx)
    found = await rules.list_rules(ctx.connection, tool_name, only_active=not include_inactive)
    return {"rules": [rule.as_dict() for rule in found]}


@tool(callers=OWNER_AND_PEERS, effect=Effect.READ)
async def show_approval_rule(ctx: CallContext, rule_id: UUID) -> dict[str, Any]:
    """Show one rule, and what it would have let through in the last 30 days."""
    _decider(ctx)
    rule = await _find_rule(ctx, rule_id)
    return {**rule.as_dict(), **await _preview(ctx, rule)}


@tool(callers=OWNER_AND_PEERS)
async def revoke_approval_rule(ctx: CallContext, rule_id: UUID) -> dict[str, Any]:
    """End a rule: its calls wait for a decision again."""
    by, rule = _decider(ctx), await _find_rule(ctx, rule_id)
    if await rules.revoke_rule(ctx.connection, rule.id):
        event = ApprovalEvent(ApprovalEventKind.RULE_REVOKED, by, ctx.clock.now(), rule_id=rule.id)
        await log_event(ctx.connection, ctx.butler, event)
    return {"id": str(rule.id), "active": False}


@tool(callers=OWNER_AND_PEERS, effect=Effect.READ)
async def suggest_rule_constraints(
    ctx: CallContext, action_id: ActionRef | None = None
) -> dict[str, Any]:
    """Suggest the narrowest rule for an action; without one, rules for what was approved repeatedly.

    Each suggestion says what else the rule would have let through in the last 30 days. None is made
    without create_rule_from_action or approve_action.
    """
    _decider(ctx)
    specs = ctx.service(Decisions).gate.runner.specs
    if action_id is not None:
        chosen = [await _find(ctx, action_id)]
    else:
        since = ctx.clock.now() - LOOK_BACK
        past = await actions.decided_since(ctx.connection, since)
        chosen = repeated_decisions(past, dict(specs))
    found = []
    for action in chosen:
        spec = specs.get(action.tool_name)
        rule = narrowest_rule(action, spec, action.agent_summary, ctx.clock.now())
        found.append({"action_id": action.id, **await _preview(ctx, rule)})
    return {"suggestions": found}


def _decider(ctx: CallContext) -> str:
    """Return who decides. A peer is not a person: only the Switchboard passes on the owner's words."""
    if ctx.caller.kind is CallerKind.OWNER:
        return ctx.caller.name
    if ctx.caller.name != SWITCHBOARD:
        raise NotAllowed(f"{ctx.caller.name} may not decide for the owner")
    return BY_CHAT


async def _find(ctx: CallContext, reference: str) -> PendingAction:
    try:
        return await actions.find_action(ctx.connection, UUID(reference))
    except ValueError:
        found = await actions.find_by_code(ctx.connection, reference.lower())
    if len(found) != 1:
        raise NotFound(f"{len(found) or 'no'} actions have the code {reference!r}", hint=LIST_HINT)
    return found[0]


async def _find_rule(ctx: CallContext, rule_id: UUID) -> ApprovalRule:
    rule = await rules.find_rule(ctx.connection, rule_id)
    if rule is None:
        raise NotFound(f"there is no rule {rule_id}", hint="`butlers approvals rules` lists them")
    return rule


async def _rule_from(
    ctx: CallContext, action: PendingAction, description: str, by: str
) -> ApprovalRule:
    spec = ctx.service(Decisions).gate.runner.specs.get(action.tool_name)
    rule = narrowest_rule(action, spec, description, ctx.clock.now())
    await _store(ctx, rule, by)
    return rule


async def _store(ctx: CallContext, rule: ApprovalRule, by: str) -> dict[str, Any]:
    rule.check(ctx.service(Decisions).gate.risk_of(rule.tool_name))
    await rules.store_rule(ctx.connection, rule)
    detail = {"tool": rule.tool_name}
    event = ApprovalEvent(
        ApprovalEventKind.RULE_CREATED, by, rule.created_at, rule.created_from, rule.id, detail
    )
    await log_event(ctx.connection, ctx.butler, event)
    return rule.as_dict()


async def _preview(ctx: CallContext, rule: ApprovalRule) -> dict[str, Any]:
    now = ctx.clock.now()
    past = await actions.actions_of_tool(ctx.connection, rule.tool_name, now - LOOK_BACK)
    return preview(rule, past, now)


def _decided(ctx: CallContext, decided: list[PendingAction]) -> dict[str, Any]:
    first, *others = decided
    return {
        **first.shown(ctx.clock.now()),
        "also_decided": [str(other.id) for other in others],
    }


TOOLS = (
    list_pending_actions,
    show_pending_action,
    approve_action,
    reject_action,
    undo_action,
    pending_action_count,
    expire_stale_actions,
    list_executed_actions,
    create_approval_rule,
    create_rule_from_action,
    list_approval_rules,
    show_approval_rule,
    revoke_approval_rule,
    suggest_rule_constraints,
)
