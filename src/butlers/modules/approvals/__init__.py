"""Approvals: calls that wait for the owner, standing rules, and how the owner is asked."""

from __future__ import annotations

from butlers.modules.approvals.config import ApprovalsConfig
from butlers.modules.approvals.tools import TOOLS
from butlers.modules.base import Module


class ApprovalsModule(Module):
    """Tools and tables of the approvals. The gate itself is part of the call pipeline (``role.py``)."""

    name = "approvals"
    config_schema = ApprovalsConfig
    tools = TOOLS

    def migration_revisions(self) -> str:
        return self.name
