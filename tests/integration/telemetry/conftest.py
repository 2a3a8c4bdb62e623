"""A collector for each test, and the houses of the daemon's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers.config.settings import Settings
from integration.daemon.conftest import house, make_house
from integration.telemetry.collector import Collector

__all__ = ["house", "make_house"]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as listening:
        yield listening


@pytest.fixture
def settings(collector: Collector) -> Settings:
    return Settings(Path("/nowhere"), otlp_endpoint=collector.endpoint)
