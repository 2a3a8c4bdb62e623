"""Fixtures: prompts evaluated on the real CLIs against a fake model, without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from butlers.config.settings import Settings
from butlers.prompt.adapters import (
    ClaudeAgentSDKAdapter,
    ClaudeAgentSDKClientConfig,
    CodexPromptAdapter,
    GeminiPromptAdapter,
    IsolationConfig,
    PromptAdapter,
)
from support import npm
from support.cli_session import PATH
from support.clis import CLAUDE, CODEX, GEMINI, Cli
from support.fake_model import FakeModel, fake_model
from support.offline import offline

__all__ = ["offline"]

ADAPTERS: dict[str, tuple[Cli, type[PromptAdapter]]] = {
    "claude-code": (CLAUDE, ClaudeAgentSDKAdapter),
    "codex": (CODEX, CodexPromptAdapter),
    "gemini": (GEMINI, GeminiPromptAdapter),
}
Adapt = Callable[..., PromptAdapter]


@pytest.fixture
async def model(offline: None) -> AsyncIterator[FakeModel]:
    async with fake_model() as made:
        yield made


@pytest.fixture
def adapt(model: FakeModel, tmp_path: Path) -> Adapt:
    """Return an adapter whose environment holds a secret that no session may see."""

    def made(name: str = "claude-code", **config: Any) -> PromptAdapter:
        cli, kind = ADAPTERS[name]
        environ = {
            "PATH": f"{npm.installed('clis')}:{PATH}",
            "HOME": str(tmp_path / "host"),
            "DATABASE_PASSWORD": "never-to-be-seen",
            **cli.environment(model.url),
        }
        settings = Settings(tmp_path / "butlers", environ=MappingProxyType(environ))
        wanted = {"isolation": IsolationConfig(), "model": cli.model, **config}
        return kind(client_config=ClaudeAgentSDKClientConfig(**wanted), settings=settings)

    return made
