"""A prompt evaluated on a CLI, with Python tools bridged to it by MCP."""

from butlers.prompt.adapters.adapter import PromptAdapter
from butlers.prompt.adapters.clients import (
    ClaudeAgentSDKAdapter,
    CodexPromptAdapter,
    GeminiPromptAdapter,
)
from butlers.prompt.adapters.config import (
    Budget,
    ClaudeAgentSDKClientConfig,
    ClientConfig,
    Disclosure,
    IsolationConfig,
)
from butlers.prompt.adapters.response import PromptResponse

__all__ = [
    "Budget",
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
