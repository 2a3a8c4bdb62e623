"""Fixtures: a running butler with the memory module."""

from __future__ import annotations

import pytest

from support.in_process import MakeButler
from support.memory import SECTION, MemoryButler


@pytest.fixture
async def memory(make_butler: MakeButler) -> MemoryButler:
    made = make_butler(extra=SECTION)
    await made.start()
    return MemoryButler(made)
