"""What waits for the owner's word, and the word itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from butlers.domain.caller import OWNER_ONLY
from butlers.messenger import approvals, pending_actions
from butlers.messenger.pending_actions import Decision
from butlers.messenger.terms import Terms
from butlers.tools.declaration import Effect, tool
from butlers.tools.context import CallContext

_DECISIONS = {"approve": Decision.APPROVED, "reject": Decision.REJECTED}


@tool(callers=OWNER_ONLY, effect=Effect.READ)
async def approvals_list(
    ctx: CallContext,
    include_decided: bool = False,
    limit: Annotated[int, Field(ge=1, le=500)] = 50,
) -> dict[str, Any]:
    """What waits for your word, newest first; with the decided and expired ones where asked for."""
    found = await pending_actions.list_actions(
        ctx.connection, only_open=not include_decided, limit=limit
    )
    now = ctx.clock.now()
    return {
        "approvals": [
            {**asdict(action), "state": action.decision or _open_state(action.expires_at <= now)}
            for action in found
        ]
    }


@tool(callers=OWNER_ONLY)
async def approvals_decide(
    ctx: CallContext,
    id: UUID,  # noqa: A002  (the name its callers know)
    decision: Literal["approve", "reject"],
) -> dict[str, Any]:
    """Approve or reject one. What is approved is on its way when this answers."""
    sent = await approvals.decide(
        ctx.connection,
        id,
        _DECISIONS[decision],
        ctx.caller.name,
        ctx.service(Terms),
        ctx.clock.now(),
    )
    return {
        "id": str(id),
        "decision": str(_DECISIONS[decision]),
        "deliveries": [str(delivery_id) for delivery_id in sent],
    }


def _open_state(late: bool) -> str:
    return str(Decision.EXPIRED) if late else "open"


TOOLS = (approvals_list, approvals_decide)
