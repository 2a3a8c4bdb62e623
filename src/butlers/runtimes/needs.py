"""What each CLI reads from its environment: a credential without which it can not think, and settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    credentials: tuple[str, ...]  # any one of them will do; the first is the one to name
    settings: tuple[str, ...] = ()  # read when the butler's configuration declares them


NEEDS = {
    "claude-code": Needs(("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"), ("ANTHROPIC_BASE_URL",)),
    "codex": Needs(("OPENAI_API_KEY",), ("OPENAI_BASE_URL",)),
    "gemini": Needs(("GEMINI_API_KEY",), ("GOOGLE_GEMINI_BASE_URL",)),
}
CORE_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
