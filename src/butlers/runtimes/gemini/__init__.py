"""Gemini CLI: one headless run per session, with a home of its own and a policy that allows its butler."""

from butlers.runtimes.gemini.adapter import GeminiAdapter

RUNTIME = GeminiAdapter

__all__ = ["RUNTIME", "GeminiAdapter"]
