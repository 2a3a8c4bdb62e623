"""Chooses the runtime that a configuration asks for."""

from __future__ import annotations

from butlers.config.butler import ButlerConfig
from butlers.domain.errors import ConfigInvalid
from butlers.runtimes.base import Runtime
from butlers.runtimes.reflex import Match, ReflexRuntime

CREDENTIALS = {
    "claude-code": "ANTHROPIC_API_KEY",
    "codex": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}


def credential_of(runtime_type: str) -> str | None:
    """The key that a runtime can not work without; None for those that need none."""
    return CREDENTIALS.get(runtime_type)


def choose_runtime(config: ButlerConfig, match: Match) -> Runtime:
    if config.runtime.type not in ("auto", "reflex"):
        raise ConfigInvalid(
            f"the runtime {config.runtime.type!r} is not available yet",
            path=config.file,
            key="runtime.type",
            hint='use type = "auto" or "reflex"',
        )
    return ReflexRuntime(match)
