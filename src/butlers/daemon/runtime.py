"""Chooses the runtime that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

from butlers.config.butler import ButlerConfig
from butlers.domain.errors import ConfigInvalid
from butlers.runtimes.base import Runtime
from butlers.runtimes.reflex import Plan, ReflexRuntime


def choose_runtime(config: ButlerConfig, match: Callable[[str], Plan | None]) -> Runtime:
    if config.runtime.type not in ("auto", "reflex"):
        raise ConfigInvalid(
            f"the runtime {config.runtime.type!r} is not available yet",
            path=config.file,
            key="runtime.type",
            hint='use type = "auto" or "reflex"',
        )
    return ReflexRuntime(match)
