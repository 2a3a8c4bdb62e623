"""The interface between the call pipeline and the approvals module.

A gate decides which calls wait for the owner, stores the question, and later lets the pipeline run the
approved call. Without a gate, a call that needs approval is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

from butlers.db.database import Connection
from butlers.domain.approval import AskReason, PendingApproval, Question
from butlers.domain.message import RequestContext
from butlers.tools.declaration import ToolSpec

NOT_DECIDED = "not decided in time"  # the reason of a refusal that no one made
MAX_DELETED = 5  # records that one call of a session may delete without asking


class ToolRunner(Protocol):
    """Runs a tool that the owner has approved, with exactly the stored arguments."""

    @property
    def specs(self) -> Mapping[str, ToolSpec]: ...

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
        """Run the tool, in the transaction of the connection if the tool has one; return its result.

        The rows that it writes are the owner's, and carry ``action_id`` as their request.
        """

    async def refuse(
        self, connection: Connection, tool: str, arguments: dict[str, Any], why: str
    ) -> None:
        """Tell the tool that its call was rejected or has expired."""


class CallGate:
    """Decides which calls of sessions wait for the owner. The approvals module implements it."""

    def attach(self, runner: ToolRunner) -> None:
        """Use this runner for approved calls. Raise ConfigInvalid for a gated tool that does not exist."""
        raise NotImplementedError

    def reason(self, spec: ToolSpec) -> AskReason | None:
        """Return why every call of this tool waits for the owner, or None if it does not."""
        raise NotImplementedError

    async def admit(self, connection: Connection, question: Question) -> bool:
        """Return whether a standing rule allows the call, and count the use of the rule."""
        raise NotImplementedError

    async def ask(self, connection: Connection, question: Question) -> PendingApproval:
        """Store the question in the transaction. An equal open question is not stored twice."""
        raise NotImplementedError

    @property
    def gated(self) -> frozenset[str]:
        """Return the names of the tools whose calls wait for the owner."""
        raise NotImplementedError
