"""Evaluate a prompt on a CLI, with Python tools served to it over MCP."""

from butlers.prompt.adapters.adapter import (
    ClaudeAgentSDKAdapter,
    CodexPromptAdapter,
    GeminiPromptAdapter,
    PromptAdapter,
)
from butlers.prompt.adapters.config import (
    ClaudeAgentSDKClientConfig,
    ClientConfig,
    Disclosure,
    IsolationConfig,
    PromptBudget,
    PromptResponse,
)

__all__ = [
    "ClaudeAgentSDKAdapter",
    "ClaudeAgentSDKClientConfig",
    "ClientConfig",
    "CodexPromptAdapter",
    "Disclosure",
    "GeminiPromptAdapter",
    "IsolationConfig",
    "PromptAdapter",
    "PromptBudget",
    "PromptResponse",
]
