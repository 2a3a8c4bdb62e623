"""A prompt evaluated on a CLI, with Python tools bridged to it by MCP."""

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
    "PromptBudget",
    "ClaudeAgentSDKAdapter",
    "ClaudeAgentSDKClientConfig",
    "ClientConfig",
    "CodexPromptAdapter",
    "Disclosure",
    "GeminiPromptAdapter",
    "IsolationConfig",
    "PromptAdapter",
    "PromptResponse",
]
