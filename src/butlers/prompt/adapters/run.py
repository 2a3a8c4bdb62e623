"""The runs of a CLI that one evaluation takes; more than one only when a run has to begin anew."""

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
    Spending,
    failure,
    total_usage,
)
from butlers.prompt.adapters.evaluation import Evaluation
from butlers.prompt.adapters.home import Home
from butlers.prompt.template import parse_output
from butlers.runtimes.base import Grants, McpServer, Terms
from butlers.runtimes.cli import CliRuntime

SHORTEST_S = 0.1  # also at the end, so that what has just ended is heard
SYSTEM = "Do what the prompt asks for. Its sections are numbered; some may be summaries that can be opened."


@dataclass(slots=True)
class PromptRun:
    """``budget_args``: the CLI's own arguments for what is left of the budget."""

    config: ClientConfig
    cli: CliRuntime
    env: Mapping[str, str]
    home: Home
    evaluation: Evaluation
    limits: TimeLimits
    spending: Spending
    budget_args: Callable[[PromptBudget], tuple[str, ...]]

    async def execute(self) -> PromptResponse[Any]:
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.limits.total_s
        try:
            return await self._until(lambda: max(ends - loop.time(), SHORTEST_S))
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
                raise DeadlineExceeded("a tool that was called did not end in time")
            anew = restart.is_set() or bridge.list_pending
            well = result.ok or (result.text and result.outcome in self._forgiven(bridge))
            if well and not bridge.list_pending:
                return self._response(result)
            if not anew:
                raise failure(result)
            # Each time at least one section more is open, so this ends.
            self.spending.require_known()

    def _forgiven(self, bridge: Bridge) -> tuple[Outcome, ...]:
        """What is no failure of a prompt: it was told what it was refused, and answered all the same. And a
        server that has no tools to offer is taken for one that was not reached."""
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
        self._tell_rendered()
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
            f"{self.cli.name} can not be held to a folder that it may only read",
            hint="leave cwd out",
        )

    def _text(self) -> str:
        """What was done in a run before is told, so that it is not done again."""
        if not self.evaluation.done:
            return self.evaluation.rendered.text
        done = "\n".join(f"- {line}" for line in self.evaluation.done)
        return f"{self.evaluation.rendered.text}\n\n## Already done\n\n{done}"

    def _tell_rendered(self) -> None:
        session, template = self.evaluation.session, self.evaluation.prompt.template
        rendered = self.evaluation.rendered
        session.bus.publish(
            PromptRendered(
                template.ns,
                template.key,
                rendered.text,
                tuple(tool.name for tool in rendered.tools),
                session.session_id,
                session.now(),
            )
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
