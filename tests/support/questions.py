"""Questions to the owner, as a gated call of a session leaves them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from butlers.domain.clock import uuid7
from support.fleet import Fleet


def leave_question(fleet: Fleet, tool: str, arguments: dict[str, Any]) -> UUID:
    """Leave the question whether general may call this tool, for an hour."""
    action, now = uuid7(), datetime.now(UTC)
    fleet.rows(
        """
        INSERT INTO general.pending_actions (id, tool_name, tool_args, args_hash, agent_summary, action,
            why, risk_tier, reversible, group_key, decides_group, trust, requested_at, expires_at,
            status)
        VALUES ($1, $2, $3, $4, $5, 'do it', 'it was gated', 'medium', true, $4, false, 'owner',
                $6, $7, 'pending')
        """,
        action,
        tool,
        json.dumps(arguments),
        action.hex,
        f"general wants to use {tool}",
        now,
        now + timedelta(hours=1),
    )
    return action
