"""Adapters: evaluate a prompt on a CLI."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import structlog

from butlers.config.settings import Settings
from butlers.domain.errors import DeadlineExceeded, PromptEvaluationError
from butlers.process.runner import TimeLimits
from butlers.prompt import Prompt, PromptExecuted, Session
from butlers.prompt.adapters.config import (
    ClaudeAgentSDKClientConfig,
    ClientConfig,
    PromptBudget,
    PromptResponse,
    SpendingLimit,
)
from butlers.prompt.adapters.evaluation import Evaluation
from butlers.prompt.adapters.home import open_home
from butlers.prompt.adapters.run import PromptRun
from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.cli import CliRuntime
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.gemini import GeminiAdapter
from butlers.skills.install.mount import AGENTS_FOLDER, CLAUDE_FOLDER

log = structlog.get_logger(__name__)
OutputT = TypeVar("OutputT")


class PromptAdapter:
    """Base adapter. Subclasses name the runtime and whether the CLI loads skills from its home."""

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
        budget: PromptBudget | None = None,
    ) -> PromptResponse[OutputT]:
        """Evaluate synchronously. Inside a running event loop, await ``evaluate_async`` instead."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(
                self.evaluate_async(prompt, session=session, deadline=deadline, budget=budget)
            )
        raise PromptEvaluationError(
            "evaluate() cannot run inside an event loop",
            hint="await evaluate_async() instead",
        )

    async def evaluate_async(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        deadline: datetime | None = None,
        budget: PromptBudget | None = None,
    ) -> PromptResponse[OutputT]:
        limits = self._limits(session, deadline)
        allowed = budget or PromptBudget()
        self.budget_args(allowed)  # rejects limits that this CLI does not support
        executable = self._executable()
        with ExitStack() as stack:
            home = stack.enter_context(open_home(self.skills_folder, self.config.cwd))
            installs = self._installs(prompt)
            if installs:
                home.install(prompt, session)
            evaluation = Evaluation(prompt, session, installs, self, deadline)
            if not evaluation.rendered.text:
                raise PromptEvaluationError(
                    f"the prompt {prompt.template.name} is empty",
                    hint="add or enable a section that states the task",
                )
            run = PromptRun(
                self.config,
                self.runtime(executable),
                self.environment(),
                home,
                evaluation,
                limits,
                SpendingLimit(allowed),
                self.budget_args,
            )
            response: PromptResponse[OutputT] = await run.execute()
        session.publish(
            PromptExecuted, prompt.template, adapter=self.runtime_name, text=response.text
        )
        return response

    def budget_args(self, budget: PromptBudget) -> tuple[str, ...]:
        """Return the CLI arguments that enforce the budget; raise if the CLI has none."""
        if budget.max_cost_usd is None and budget.max_turns is None:
            return ()
        raise PromptEvaluationError(
            f"{self.runtime_name} cannot limit cost or turns",
            hint="use max_total_tokens and a deadline",
        )

    def _installs(self, prompt: Prompt[Any]) -> bool:
        isolation = self.config.isolation
        if isolation is None:
            if any(True for _ in prompt.skills_sections()):
                log.warning("Skills installation requires hermetic isolation")
            return False
        return isolation.install_skills and self.loads_skills

    def _limits(self, session: Session, deadline: datetime | None) -> TimeLimits:
        limits = self.config.limits
        if deadline is None:
            return limits
        left_s = (deadline - session.now()).total_seconds()
        if left_s <= 0:
            raise DeadlineExceeded("the deadline passed before the evaluation started")
        return replace(limits, total_s=min(limits.total_s, left_s))

    def _executable(self) -> Path:
        if self.config.executable is not None:
            return self.config.executable
        found = self.runtime.find(self._environ.get("PATH", ""))
        if found is None:
            raise PromptEvaluationError(
                f"{self.runtime_name} is not installed", hint=self.runtime.install_hint()
            )
        return found

    def environment(self) -> Mapping[str, str]:
        """Return the CLI's environment: PATH and its model's credentials and settings only."""
        cli = self.runtime
        wanted = ("PATH", *cli.credentials, *cli.settings)
        env = {name: self._environ[name] for name in wanted if name in self._environ}
        isolation = self.config.isolation
        if isolation is not None:
            env |= isolation.env
            if isolation.api_key is not None:
                env[cli.credentials[0]] = isolation.api_key
        return env


class ClaudeAgentSDKAdapter(PromptAdapter):
    """Claude Code, run by our process runner: the SDK passes the whole environment to its child."""

    runtime = ClaudeCodeAdapter
    runtime_name = ClaudeCodeAdapter.name
    loads_skills = True

    def __init__(
        self,
        *,
        client_config: ClaudeAgentSDKClientConfig | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(
            client_config=client_config or ClaudeAgentSDKClientConfig(), settings=settings
        )

    def budget_args(self, budget: PromptBudget) -> tuple[str, ...]:
        cost, turns = budget.max_cost_usd, budget.max_turns
        return (
            *(() if cost is None else ("--max-budget-usd", str(cost))),
            *(() if turns is None else ("--max-turns", str(turns))),
        )


class CodexPromptAdapter(PromptAdapter):
    """Codex. A sealed Codex cannot read files, so its skills are sections of the prompt."""

    runtime = CodexAdapter
    runtime_name = CodexAdapter.name


class GeminiPromptAdapter(PromptAdapter):
    """Gemini. It loads skills from the folder that several CLIs share."""

    runtime = GeminiAdapter
    runtime_name = GeminiAdapter.name
    loads_skills = True
    skills_folder = AGENTS_FOLDER
