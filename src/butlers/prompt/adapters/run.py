"""CLI runs of one evaluation. New tools may require a new run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from butlers.domain.errors import DeadlineExceeded, PromptEvaluationError
from butlers.domain.session import Outcome, SessionResult
from butlers.process.runner import STOP, TimeLimits
from butlers.prompt import PromptRendered
from butlers.prompt.adapters.bridge import NAME, Bridge
from butlers.prompt.adapters.config import (
    ClientConfig,
    Disclosure,
    PromptBudget,
    PromptResponse,
    SpendingLimit,
    failure,
    total_usage,
)
from butlers.prompt.adapters.evaluation import Evaluation
from butlers.prompt.adapters.home import Home
from butlers.prompt.template import parse_output
from butlers.runtimes.base import Grants, McpServer, Terms
from butlers.runtimes.cli import CliRuntime

MIN_WAIT_S = 0.1  # also at the deadline, so that a run that just ended is noticed
SYSTEM = "Do what the prompt asks for. Its sections are numbered; some may be summaries that can be opened."


@dataclass(slots=True)
class PromptRun:
    """Runner of an evaluation. ``budget_args`` returns CLI arguments for the remaining budget."""

    config: ClientConfig
    cli: CliRuntime
    env: Mapping[str, str]
    home: Home
    evaluation: Evaluation
    limits: TimeLimits
    spending: SpendingLimit
    budget_args: Callable[[PromptBudget], tuple[str, ...]]

    async def execute(self) -> PromptResponse[Any]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.limits.total_s
        try:
            return await self._until(lambda: max(ends - loop.time(), MIN_WAIT_S))
        finally:
            self.evaluation.cancel_calls()

    async def _until(self, left_s: Callable[[], float]) -> PromptResponse[Any]:
        while True:
            restart = asyncio.Event()
            always = self.config.disclosure is Disclosure.RESTART
            bridge = Bridge(self.evaluation, restart.set, always_restart=always)
            async with bridge.open() as server:
                result = await self._once(server, restart, left_s())
            settled = await self.evaluation.wait_for_calls(left_s())
            self.spending.add(result)
            if not settled:
                raise DeadlineExceeded("a tool call did not end in time")
            anew = restart.is_set() or bridge.list_pending
            well = result.ok or (result.text and result.outcome in self._accepted_outcomes(bridge))
            if well and not bridge.list_pending:
                return self._response(result)
            if not anew:
                raise failure(result)
            # Terminates: each new run has at least one more open section.
            self.spending.require_known()

    def _accepted_outcomes(self, bridge: Bridge) -> tuple[Outcome, ...]:
        """Return outcomes that count as success if there is an answer.

        DENIED: the model was told of the denial and still answered. MCP_UNAVAILABLE: CLIs report it for
        a server without tools.
        """
        empty = bridge.reached and not self.evaluation.offered()
        return (Outcome.DENIED, *((Outcome.MCP_UNAVAILABLE,) if empty else ()))

    async def _once(
        self, server: McpServer, restart: asyncio.Event, total_s: float
    ) -> SessionResult:
        terms = Terms(
            self.home.workspace,
            self._grants(),
            replace(self.limits, total_s=total_s),
            self.config.model,
            self.budget_args(self.spending.left()),
            skills=bool(self.home.skills),
        )
        self._publish_rendered()
        task = asyncio.create_task(
            self.cli.invoke(self._text(), SYSTEM, {NAME: server}, self.env, terms)
        )
        watch = asyncio.create_task(restart.wait())
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel(STOP)
            return await task
        finally:
            watch.cancel()
            task.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    def _grants(self) -> Grants:
        grants = self.home.grants()
        if self.cli.holds(grants.access):
            return grants
        raise PromptEvaluationError(
            f"{self.cli.name} does not support a read-only folder",
            hint="remove cwd",
        )

    def _text(self) -> str:
        """Return the prompt, with the calls of earlier runs so that they are not repeated."""
        if not self.evaluation.done:
            return self.evaluation.rendered.text
        done = "\n".join(f"- {line}" for line in self.evaluation.done)
        return f"{self.evaluation.rendered.text}\n\n## Already done\n\n{done}"

    def _publish_rendered(self) -> None:
        rendered, tools = self.evaluation.rendered, self.evaluation.rendered.tools
        self.evaluation.session.publish(
            PromptRendered,
            self.evaluation.prompt.template,
            text=rendered.text,
            tools=tuple(tool.name for tool in tools),
        )

    def _response(self, result: SessionResult) -> PromptResponse[Any]:
        kind = self.evaluation.rendered.output_type
        runs = self.spending.results
        return PromptResponse(
            self.evaluation.prompt.template.name,
            result.text,
            None if kind is None else parse_output(kind, result.text),
            total_usage(one.usage for one in runs),
            tuple(call for one in runs for call in one.tool_calls),
            tuple(denial for one in runs for denial in one.denials),
            len(runs),
        )
