"""The adapters: one line of difference for each CLI."""

from __future__ import annotations

from butlers.config.settings import Settings
from butlers.prompt.adapters.adapter import PromptAdapter
from butlers.prompt.adapters.config import Budget, ClaudeAgentSDKClientConfig
from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.gemini import GeminiAdapter
from butlers.skills.installer import AGENTS_FOLDER


class ClaudeAgentSDKAdapter(PromptAdapter):
    """On Claude Code, by our own process runner: the SDK hands its child the whole environment."""

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

    def budget_args(self, budget: Budget) -> tuple[str, ...]:
        cost, turns = budget.max_cost_usd, budget.max_turns
        return (
            *(() if cost is None else ("--max-budget-usd", str(cost))),
            *(() if turns is None else ("--max-turns", str(turns))),
        )


class CodexPromptAdapter(PromptAdapter):
    """Sealed, it has no hands to read files with: its skills are sections of the prompt."""

    runtime = CodexAdapter
    runtime_name = CodexAdapter.name


class GeminiPromptAdapter(PromptAdapter):
    """It finds its skills in a folder that several CLIs share."""

    runtime = GeminiAdapter
    runtime_name = GeminiAdapter.name
    loads_skills = True
    skills_folder = AGENTS_FOLDER
