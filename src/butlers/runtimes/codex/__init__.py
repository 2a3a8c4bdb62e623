"""Codex: one ``codex exec`` per session, with a home of its own and no tools but its butler's."""

from butlers.runtimes.codex.adapter import CodexAdapter

RUNTIME = CodexAdapter

__all__ = ["RUNTIME", "CodexAdapter"]
