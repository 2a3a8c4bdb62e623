"""Claude Code, run headless: ``claude -p`` with nothing of its own but what a session is granted."""

from butlers.runtimes.claude_code.adapter import ClaudeCodeAdapter

__all__ = ["ClaudeCodeAdapter"]
