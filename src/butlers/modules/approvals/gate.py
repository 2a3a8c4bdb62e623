"""The gate of the call pipeline: which calls wait, which a standing rule admits, and the stored question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches

import structlog

from butlers.db.database import Connection
from butlers.domain.approval import AskReason, PendingApproval, Question, RiskTier
from butlers.domain.clock import Clock, uuid7
from butlers.domain.errors import ConfigInvalid, NotAllowed
from butlers.modules.approvals import actions, rules
from butlers.modules.approvals.actions import PendingAction
from butlers.modules.approvals.config import ApprovalsConfig, GatedToolConfig
from butlers.modules.approvals.events import ApprovalEvent, ApprovalEventKind, log_event
from butlers.modules.approvals.questions import summarize
from butlers.queue.journal import hash_arguments
from butlers.tools.declaration import ToolSpec
from butlers.tools.gate import CallGate, ToolRunner

log = structlog.get_logger()

MAX_OPEN = 20  # open questions of one session: an endless loop must not fill the owner's list
_UNSET = GatedToolConfig()


@dataclass(slots=True)
class ApprovalGate(CallGate):
    butler: str
    config: ApprovalsConfig
    clock: Clock
    _runner: ToolRunner | None = field(default=None)

    def attach(self, runner: ToolRunner) -> None:
        self._runner = runner
        missing = sorted(set(self.config.gated_tools) - {one.name for one in runner.specs.values()})
        if missing:
            near = get_close_matches(missing[0], list(runner.specs), n=1)
            raise ConfigInvalid(
                f"modules.approvals.gated_tools: {self.butler} has no tool {missing[0]!r}",
                hint=f"did you mean {near[0]!r}?" if near else "the tool's module may have failed",
            )

    @property
    def runner(self) -> ToolRunner:
        if self._runner is None:
            raise RuntimeError("the gate has no runner yet")
        return self._runner

    @property
    def gated(self) -> frozenset[str]:
        asking = {spec.name for spec in self._specs.values() if spec.asks is not None}
        return frozenset(self.config.gated_tools) | asking

    @property
    def _specs(self) -> Mapping[str, ToolSpec]:
        return self._runner.specs if self._runner else {}

    def reason(self, spec: ToolSpec) -> AskReason | None:
        if spec.asks is not None:
            return AskReason(spec.asks, f"it would {spec.asks}", spec.risk)
        if spec.name in self.config.gated_tools:
            return AskReason(f"use {spec.name}", f"you want to be asked before {spec.name} is used")
        return None

    def risk_of(self, tool: str, reason: AskReason | None = None) -> RiskTier:
        configured = self.config.gated_tools.get(tool, _UNSET).risk_tier
        spec = self._specs.get(tool)
        declared = (reason and reason.risk) or (spec and spec.risk)
        return configured or declared or self.config.default_risk_tier

    async def admit(self, connection: Connection, question: Question) -> bool:
        now = self.clock.now()
        known = await rules.rules_of_tool(connection, question.tool)
        while True:
            rule = rules.best_rule(
                known,
                question.tool,
                question.arguments,
                trusted=question.source.is_trusted,
                now=now,
            )
            if rule is None:
                return False
            if await rules.use_rule(connection, rule.id, now):
                break
            known.remove(rule)  # another call took its last use
        await log_event(
            connection,
            self.butler,
            ApprovalEvent(
                ApprovalEventKind.AUTO_APPROVED,
                "rule",
                now,
                rule_id=rule.id,
                detail=_named(question.tool, hash_arguments(question.arguments)),
            ),
        )
        return True

    async def ask(self, connection: Connection, question: Question) -> PendingApproval:
        action = self._action(question)
        known = await actions.find_equal(connection, action)
        if known is not None:
            return _waiting(known)
        if (
            action.session_id
            and await actions.count_open(connection, action.session_id) >= MAX_OPEN
        ):
            raise NotAllowed(
                f"{MAX_OPEN} calls of this session wait for the owner already",
                hint="stop here, and say that the owner has to decide first",
            )
        await actions.store_action(connection, action)
        event = ApprovalEvent(
            ApprovalEventKind.QUEUED,
            f"session {action.session_id}" if action.session_id else self.butler,
            action.requested_at,
            action.id,
            detail=_named(action.tool_name, action.args_hash),
        )
        await log_event(connection, self.butler, event)
        log.info("approval needed", tool=action.tool_name, action=str(action.id), why=action.why)
        return _waiting(action)

    def _action(self, question: Question) -> PendingAction:
        now, source = self.clock.now(), question.source
        hours = self.config.gated_tools.get(question.tool, _UNSET).expiry_hours
        lasting = timedelta(hours=hours or self.config.default_expiry_hours)
        return PendingAction(
            id=uuid7(),
            tool_name=question.tool,
            tool_args=question.arguments,
            args_hash=hash_arguments(question.arguments),
            agent_summary=summarize(self.butler, question),
            action=question.reason.action,
            why=question.reason.why,
            risk_tier=self.risk_of(question.tool, question.reason),
            reversible=question.reversible,
            group_key=question.group or f"{question.tool}:{source.sender}:{question.reason.action}",
            decides_group=question.decides_group,
            trust=source.trust,
            requested_at=now,
            expires_at=now + lasting,
            session_id=source.session_id,
            request_id=source.request_id,
            sender=source.sender,
            request=question.request,
        )


def _waiting(action: PendingAction) -> PendingApproval:
    return PendingApproval(
        action.id,
        "This is not done: it waits for the owner's approval. Do not try it again or another way."
        " The person is told of the outcome.",
        action.risk_tier,
    )


def _named(tool: str, args_hash: str) -> dict[str, str]:
    """Name a call in the log without its arguments: the log is outside the butler's schema."""
    return {"tool": tool, "args_hash": args_hash}
