"""Configuration of the memory module: ``[modules.memory]`` in butler.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from butlers.config.values import ConfigTable
from butlers.modules.base import ModuleConfig


class ConsolidationConfig(ConfigTable):
    enabled: bool = True
    interval_hours: Annotated[float, Field(gt=0, le=720)] = 24
    max_episodes: Annotated[int, Field(ge=1, le=200)] = 60  # read by one session


class ContextConfig(ConfigTable):
    max_tokens: Annotated[int, Field(ge=0, le=20_000)] = 3_000  # 0: no block


class EmbeddingConfig(ConfigTable):
    model: Path | None = None  # folder of a BERT sentence model; None: the shipped one


class RetentionConfig(ConfigTable):
    episode_days: Annotated[int, Field(ge=1, le=36_500)] = 7
    max_episodes: Annotated[int, Field(ge=100, le=10_000_000)] = 10_000


class MemoryConfig(ModuleConfig):
    record_messages: bool = True  # each routed message becomes an episode
    consolidation: ConsolidationConfig = ConsolidationConfig()
    context: ContextConfig = ContextConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    retention: RetentionConfig = RetentionConfig()
