"""The owner's rules for what comes in, and why a message went where it went."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY
from butlers.domain.errors import NotFound
from butlers.domain.ids import uuid7
from butlers.domain.message import check_storable
from butlers.domain.rule import RuleAction, RuleKind, TriageRule
from butlers.switchboard import registry
from butlers.switchboard import rule_store as rules
from butlers.switchboard.inbound import InboundService
from butlers.switchboard.rules import check_pattern
from butlers.switchboard.triage import candidates
from butlers.tools.base import Effect, tool
from butlers.tools.context import CallContext

LOOK_BACK = timedelta(days=30)


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def rules_list(ctx: CallContext) -> dict[str, Any]:
    """The rules in the order in which they are tried, and how often each has acted."""
    return {"rules": await rules.list_rules(ctx.connection)}


@tool(callers=OWNER_ONLY)
async def rules_add(
    ctx: CallContext,
    kind: RuleKind,
    action: RuleAction,
    value: str = "",
    target: str | None = None,
    header: str | None = None,
    channel: str | None = None,
    position: Annotated[int, Field(ge=0, le=1_000_000)] = 100,
    note: str = "",
) -> dict[str, Any]:
    """Add a rule. The first that matches, by position, decides what becomes of a message."""
    rule = TriageRule(uuid7(), kind, value, action, target, header, channel, position, note)
    rule.check()
    check_storable("the rule", [value, target or "", header or "", channel or "", note])
    if kind is RuleKind.PATTERN:
        check_pattern(value)
    if target is not None:
        names = [one.name for one in candidates(await registry.list_registrations(ctx.connection))]
        if target not in names:
            raise NotFound(
                f"there is no butler {target!r} to take it", hint=f"butlers: {', '.join(names)}"
            )
    await rules.add_rule(ctx.connection, rule)
    return {"id": str(rule.rule_id), "rule": str(rule)}


@tool(callers=OWNER_ONLY)
async def rules_remove(ctx: CallContext, id: UUID) -> dict[str, Any]:  # noqa: A002
    """Take a rule away. What it did stays done."""
    removed = await rules.remove_rule(ctx.connection, id)
    if removed is None:
        raise NotFound(f"there is no rule {id}", hint="`butlers rules list` shows them")
    return {"id": str(id), "rule": str(removed)}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def rules_suggest(
    ctx: CallContext, at_least: Annotated[int, Field(ge=2, le=1_000)] = 5
) -> dict[str, Any]:
    """Rules that a month's decisions amount to. They are never applied unasked."""
    found = await rules.suggest_rules(ctx.connection, ctx.clock.now() - LOOK_BACK, at_least)
    return {
        "suggestions": [
            {
                "kind": str(one.rule.kind),
                "value": one.rule.value,
                "channel": one.rule.channel,
                "action": str(one.rule.action),
                "target": one.rule.target,
                "messages": one.messages,
            }
            for one in found
        ]
    }


@tool(callers=OWNER_ONLY, effect=Effect.LOOK)
async def triage_explain(ctx: CallContext, request_id: UUID) -> dict[str, Any]:
    """Replay the decision on a message: what was decided then, and what each step would say now."""
    return await ctx.service(InboundService).triage.explain(request_id)


TOOLS = (rules_list, rules_add, rules_remove, rules_suggest, triage_explain)
