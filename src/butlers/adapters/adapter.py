"""An adapter evaluates a prompt on a CLI: rendered, bridged, run, and run anew where that is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import structlog

from butlers.adapters.bridge import NAME, Bridge
from butlers.adapters.config import Budget, ClientConfig, Disclosure
from butlers.adapters.desk import Desk
from butlers.adapters.home import Home, open_home
from butlers.adapters.response import PromptResponse, failure, total
from butlers.config.settings import Settings
from butlers.domain.errors import DeadlineExceeded, OverBudget, PromptEvaluationError
from butlers.domain.session import Outcome, SessionResult
from butlers.prompt import Prompt, PromptExecuted, PromptRendered, Session
from butlers.prompt.output import parse
from butlers.runtimes.base import Limits, McpServer, Terms
from butlers.runtimes.cli import CliRuntime
from butlers.runtimes.installed import find_cli, install_hint
from butlers.runtimes.needs import NEEDS
from butlers.runtimes.process import STOP
from butlers.skills.installer import CLAUDE_FOLDER

log = structlog.get_logger(__name__)
OutputT = TypeVar("OutputT")
SYSTEM = "Do what the prompt asks for. Its sections are numbered; some may be summaries that can be opened."


class PromptAdapter:
    """What differs from one CLI to the next: the runtime, and whether it loads skills from its home."""

    runtime: ClassVar[type[CliRuntime]]
    runtime_name: ClassVar[str]
    loads_skills: ClassVar[bool] = False
    skills_folder: ClassVar[Path] = CLAUDE_FOLDER

    def __init__(
        self, *, client_config: ClientConfig | None = None, settings: Settings | None = None
    ) -> None:
        self.config = client_config or ClientConfig()
        self._environ = (settings or Settings.from_environ()).environ

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: datetime | None = None,
        budget: Budget | None = None,
    ) -> PromptResponse[OutputT]:
        """For code that is not asynchronous; inside a running loop await ``evaluate_async``."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(
                self.evaluate_async(prompt, session=session, deadline=deadline, budget=budget)
            )
        raise PromptEvaluationError(
            "evaluate() can not wait inside a running event loop",
            hint="await evaluate_async() instead",
        )

    async def evaluate_async(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: datetime | None = None,
        budget: Budget | None = None,
    ) -> PromptResponse[OutputT]:
        limits = self._limits(session, deadline)
        allowed = budget or Budget()
        self.budget_args(allowed)  # refuses what this CLI can not be held to
        executable = self._executable()
        with ExitStack() as stack:
            home = stack.enter_context(open_home(self.skills_folder, self.config.cwd))
            installs = self._installs(prompt)
            if installs:
                home.install(prompt, session)
            desk = Desk(prompt, session, installs, self, deadline)
            if not desk.rendered.text:
                raise PromptEvaluationError(
                    f"nothing of {prompt.template.name} is shown: there is nothing to ask",
                    hint="give it a section that says what is to be done",
                )
            run = _Run(self, home, desk, limits, allowed, self.runtime(executable))
            response: PromptResponse[OutputT] = await run.to_the_end()
        template = prompt.template
        session.bus.publish(
            PromptExecuted(
                template.ns,
                template.key,
                self.runtime_name,
                response.text,
                session.session_id,
                session.now(),
            )
        )
        return response

    def budget_args(self, budget: Budget) -> tuple[str, ...]:
        """The CLI's own arguments for it."""
        if budget.max_cost_usd is None and budget.max_turns is None:
            return ()
        raise PromptEvaluationError(
            f"{self.runtime_name} can not be held to a cost or a number of turns",
            hint="give it max_total_tokens and a deadline",
        )

    def _installs(self, prompt: Prompt[Any]) -> bool:
        isolation = self.config.isolation
        if isolation is None:
            if any(True for _ in prompt.skills_sections()):
                log.warning("Skills installation requires hermetic isolation")
            return False
        return isolation.install_skills and self.loads_skills

    def _limits(self, session: Session, deadline: datetime | None) -> Limits:
        limits = self.config.limits
        if deadline is None:
            return limits
        left_s = (deadline - session.now()).total_seconds()
        if left_s <= 0:
            raise DeadlineExceeded("the deadline was over before it began")
        return replace(limits, total_s=min(limits.total_s, left_s))

    def _executable(self) -> Path:
        if self.config.executable is not None:
            return self.config.executable
        found = find_cli(self.runtime_name, self._environ.get("PATH", ""))
        if found is None:
            raise PromptEvaluationError(
                f"{self.runtime_name} is not installed", hint=install_hint(self.runtime_name)
            )
        return found.executable

    def environment(self) -> Mapping[str, str]:
        """PATH, and what the CLI needs to reach its model; of this process nothing else."""
        needs = NEEDS[self.runtime_name]
        wanted = ("PATH", *needs.credentials, *needs.settings)
        env = {name: self._environ[name] for name in wanted if name in self._environ}
        isolation = self.config.isolation
        if isolation is not None:
            env |= isolation.env
            if isolation.api_key is not None:
                env[needs.credentials[0]] = isolation.api_key
        return env


@dataclass(slots=True)
class _Run:
    """The runs of a CLI that one evaluation takes; more than one only when a run has to begin anew."""

    adapter: PromptAdapter
    home: Home
    desk: Desk
    limits: Limits
    budget: Budget
    cli: CliRuntime
    results: list[SessionResult] = field(default_factory=list)

    async def to_the_end(self) -> PromptResponse[Any]:
        while True:
            stuck = asyncio.Event()
            always = self.adapter.config.disclosure is Disclosure.RESTART
            bridge = Bridge(self.desk, stuck.set, always_stuck=always)
            async with bridge.open() as server:
                result = await self._once(server, stuck)
            await self.desk.settle()
            self.results.append(result)
            self._hold_to(self.budget)
            anew = stuck.is_set() or bridge.owes_list
            well = result.ok or (result.text and result.outcome in self._forgiven(bridge))
            if well and not bridge.owes_list:
                return self._response(result)
            if not anew:
                raise failure(result)
            # Each time at least one section more is open, so this ends.
            self._hold_what_is_unknown(self.budget)

    def _forgiven(self, bridge: Bridge) -> tuple[Outcome, ...]:
        """What is no failure of a prompt: it was told what it was refused, and answered all the same. And a
        server that has no tools to offer is taken for one that was not reached."""
        empty = bridge.reached and not self.desk.offered()
        return (Outcome.DENIED, *((Outcome.MCP_UNAVAILABLE,) if empty else ()))

    async def _once(self, server: McpServer, stuck: asyncio.Event) -> SessionResult:
        terms = Terms(
            self.home.workspace,
            self._grants(),
            self._left(),
            self.adapter.config.model,
            self.adapter.budget_args(self._left_of(self.budget)),
            skills=bool(self.home.skills),
        )
        self._tell_rendered()
        task = asyncio.create_task(
            self.cli.invoke(self._text(), SYSTEM, {NAME: server}, self.adapter.environment(), terms)
        )
        watch = asyncio.create_task(stuck.wait())
        try:
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel(STOP)
            return await task
        finally:
            watch.cancel()
            task.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    def _grants(self) -> Any:
        grants = self.home.grants()
        if self.cli.holds(grants.access):
            return grants
        raise PromptEvaluationError(
            f"{self.cli.name} can not be held to a folder that it may only read",
            hint="leave cwd out",
        )

    def _left(self) -> Limits:
        """What the runs before have left of the time."""
        spent = sum(one.exit.seconds for one in self.results if one.exit)
        return replace(self.limits, total_s=max(self.limits.total_s - spent, 0.1))

    def _text(self) -> str:
        """What was done in a run before is told, so that it is not done again."""
        if not self.desk.done:
            return self.desk.rendered.text
        done = "\n".join(f"- {line}" for line in self.desk.done)
        return f"{self.desk.rendered.text}\n\n## Already done\n\n{done}"

    def _tell_rendered(self) -> None:
        session, template, rendered = (
            self.desk.session,
            self.desk.prompt.template,
            self.desk.rendered,
        )
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

    def _hold_to(self, budget: Budget) -> None:
        used = total(one.usage for one in self.results)
        tokens = (used.input_tokens or 0) + (used.output_tokens or 0)
        if budget.max_total_tokens is not None and tokens > budget.max_total_tokens:
            raise OverBudget(
                f"{tokens} tokens were used, and {budget.max_total_tokens} were allowed",
                hint="allow it more, or ask for less",
            )

    def _hold_what_is_unknown(self, budget: Budget) -> None:
        """A run that was cut off may not have said what it used: then nobody can say what is left."""
        used = self.results[-1].usage
        unknown = (budget.max_cost_usd is not None and used.cost_usd is None) or (
            budget.max_total_tokens is not None and used.input_tokens is None
        )
        if unknown:
            raise OverBudget(
                "it has to begin anew, and what was used so far is not known",
                hint="leave disclosure as it is, or give it a number of turns and a deadline",
            )

    def _left_of(self, budget: Budget) -> Budget:
        """A turn that was cut off counts with each of its calls, which are no fewer than its turns."""
        cost, turns = budget.max_cost_usd, budget.max_turns
        spent = sum((one.usage.cost_usd or Decimal(0) for one in self.results), Decimal(0))
        called = sum(len(one.tool_calls) for one in self.results)
        return replace(
            budget,
            max_cost_usd=None if cost is None else max(cost - spent, Decimal(0)),
            max_turns=None if turns is None else max(turns - called, 1),
        )

    def _response(self, result: SessionResult) -> PromptResponse[Any]:
        kind = self.desk.rendered.output_type
        return PromptResponse(
            self.desk.prompt.template.name,
            result.text,
            None if kind is None else parse(kind, result.text),
            total(one.usage for one in self.results),
            tuple(call for one in self.results for call in one.tool_calls),
            tuple(denial for one in self.results for denial in one.denials),
            len(self.results),
        )
