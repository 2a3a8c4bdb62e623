"""A prompt evaluated on a CLI, with Python tools bridged to it by MCP."""

from butlers.adapters.adapter import PromptAdapter
from butlers.adapters.clients import (
    ClaudeAgentSDKAdapter,
    CodexPromptAdapter,
    GeminiPromptAdapter,
)
from butlers.adapters.config import (
    Budget,
    ClaudeAgentSDKClientConfig,
    ClientConfig,
    Disclosure,
    IsolationConfig,
)
from butlers.adapters.response import PromptResponse

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
