"""Each folder of ``butlers.runtimes`` is a runtime, and the configuration knows its name."""

from __future__ import annotations

from typing import get_args

from butlers.config import butler
from butlers.runtimes.registry import cli_runtimes


def test_the_configuration_accepts_the_name_of_each_registered_runtime() -> None:
    assert get_args(butler.RuntimeType) == ("auto", *cli_runtimes(), "reflex")


def test_auto_tries_claude_code_first() -> None:
    assert list(cli_runtimes()) == ["claude-code", "codex", "gemini"]
