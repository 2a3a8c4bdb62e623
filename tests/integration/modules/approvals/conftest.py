"""A butler with the approvals module, and strangers who write to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from butlers.domain.message import RequestContext
from support.in_process import InProcessButler, MakeButler
from support.messages import request_context

SWITCHBOARD = '[butler.switchboard]\nurl = "http://127.0.0.1:9/mcp"\n'
GATED = """
[modules.approvals.gated_tools.write]
risk_tier = "low"
expiry_hours = 2

[modules.approvals.gated_tools.write_and_fail]
risk_tier = "high"

[modules.approvals.gated_tools.slow]
"""


def stranger(name: str = "bob") -> RequestContext:
    """The context of a message that another person wrote."""
    return replace(
        request_context(),
        source_endpoint_identity=f"console:{name}",
        source_sender_identity=name,
        sender_roles=("contact",),
    )


@pytest.fixture
async def gated(make_butler: MakeButler) -> InProcessButler:
    """The test butler with three gated tools, running."""
    made = make_butler(extra=f"{SWITCHBOARD}{GATED}")
    await made.start()
    return made


async def pending(butler: InProcessButler, **arguments: Any) -> list[dict[str, Any]]:
    async with butler.owner() as owner:
        found: list[dict[str, Any]] = (await owner.call("list_pending_actions", arguments))[
            "actions"
        ]
    return found


async def decide(butler: InProcessButler, tool: str, action: Any, **arguments: Any) -> Any:
    async with butler.owner() as owner:
        return await owner.call(tool, {"action_id": str(action), **arguments})
