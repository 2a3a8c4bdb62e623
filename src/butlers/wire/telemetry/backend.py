"""Where spans and metrics go: to nobody, or to the one backend that this process has installed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from butlers.domain.trace import TraceContext

Value = str | bool | int | float
Attributes = Mapping[str, Value]


class Instrument(StrEnum):
    QUEUE_DEPTH = "butlers.queue.depth"
    LEASE_EXPIRIES = "butlers.queue.lease_expiries"
    SESSION_DURATION = "butlers.session.duration"
    SESSION_TOKENS = "butlers.session.tokens"
    SESSION_COST = "butlers.session.cost"


class Recording(Protocol):
    """A span that is being collected."""

    def end(self, attributes: Attributes, failure: str | None) -> None: ...


class Backend(Protocol):
    def start(
        self, name: str, context: TraceContext, parent: TraceContext | None, *, serves: bool
    ) -> Recording: ...

    def measure(self, instrument: Instrument, value: float, attributes: Attributes) -> None: ...

    def stop(self, within_s: float) -> None: ...


_installed: Backend | None = None


def install(backend: Backend | None) -> None:
    global _installed
    _installed = backend


def installed() -> Backend | None:
    return _installed


def is_on() -> bool:
    """Whether anybody collects. What costs something to find out is found out only then."""
    return _installed is not None
