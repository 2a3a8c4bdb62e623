"""Claude Code: one headless ``claude -p`` per session, with only what the session is granted."""

from butlers.runtimes.claude_code.adapter import ClaudeCodeAdapter

RUNTIME = ClaudeCodeAdapter

__all__ = ["RUNTIME", "ClaudeCodeAdapter"]
