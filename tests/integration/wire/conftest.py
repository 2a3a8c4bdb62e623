"""A telemetry collector for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.config.settings import Settings
from support.collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as listening:
        yield listening


@pytest.fixture
def settings(collector: Collector) -> Settings:
    return Settings(Path("/nowhere"), otlp_endpoint=collector.endpoint)
