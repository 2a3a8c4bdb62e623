"""Approvals: actions that wait for the owner, standing rules, and unknown senders whose messages are held."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import Response

from butlers.api.fleet import Record
from butlers.api.views import Site
from butlers.domain.errors import ButlersError, NotFound
from butlers.domain.queues import SWITCHBOARD

router = APIRouter()

DECIDED = 20


@router.get("/approvals")
async def approvals(request: Request) -> Response:
    site = Site.of(request)
    waiting, failed = await pending_actions(site)
    done, _ = await pending_actions(site, tool="list_executed_actions", limit=DECIDED)
    rules, _ = await pending_actions(site, tool="list_approval_rules", key="rules")
    senders = await site.fleet.call(SWITCHBOARD, "contacts_waiting")
    return site.render(
        request,
        "approvals.html",
        waiting=waiting,
        done=sorted(done, key=lambda one: str(one["decided_at"]), reverse=True)[:DECIDED],
        rules=rules,
        failed=failed,
        senders=senders["waiting"],
    )


@router.get("/approvals/{butler}/{action_id}/rule")
async def preview_rule(request: Request, butler: str, action_id: UUID) -> Response:
    """Show the narrowest rule for an action, and what else it would have let through."""
    site = Site.of(request)
    found = await site.fleet.call(butler, "suggest_rule_constraints", action_id=str(action_id))
    return site.render(
        request,
        "approval_rule.html",
        butler=butler,
        action_id=action_id,
        suggestion=found["suggestions"][0],
    )


@router.post("/approvals/{butler}/{action_id}")
async def decide(
    request: Request,
    butler: str,
    action_id: UUID,
    decision: Annotated[Literal["approve", "always", "reject", "undo"], Form()],
) -> Response:
    arguments: dict[str, Any] = {"action_id": str(action_id)}
    if decision == "always":
        arguments["create_rule"] = True
    tools = {"reject": "reject_action", "undo": "undo_action"}
    await Site.of(request).fleet.call(butler, tools.get(decision, "approve_action"), **arguments)
    return Response(headers={"HX-Refresh": "true"})


@router.post("/approvals/{butler}/rules/{rule_id}/revoke")
async def revoke(request: Request, butler: str, rule_id: UUID) -> Response:
    await Site.of(request).fleet.call(butler, "revoke_approval_rule", rule_id=str(rule_id))
    return Response(headers={"HX-Refresh": "true"})


async def pending_actions(
    site: Site, tool: str = "list_pending_actions", key: str = "actions", **arguments: Any
) -> tuple[list[Record], dict[str, ButlersError]]:
    """Return the actions of all butlers. A butler without the approvals module has none."""
    found, failed = await site.fleet.list_all(tool, key, **arguments)
    return found, {name: error for name, error in failed.items() if not isinstance(error, NotFound)}
