"""Fixtures of the integration tests, for attacks on running butlers."""

from __future__ import annotations

from integration.conftest import (
    key,
    make_butler,
    prepared,
    prepared_template,
    switchboard,
    tester,
)
from integration.runtimes.conftest import model, open_cli_butler
from support.offline import offline

__all__ = [
    "key",
    "make_butler",
    "model",
    "offline",
    "open_cli_butler",
    "prepared",
    "prepared_template",
    "switchboard",
    "tester",
]
