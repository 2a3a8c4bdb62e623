"""The telemetry backend of this process, its start and stop, and the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

import structlog
from structlog.contextvars import get_contextvars

from butlers.config.settings import Settings
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
    """Return whether telemetry is collected, so that expensive measurements are skipped otherwise."""
    return _installed is not None


# -- start and stop ------------------------------------------------------------------------------


log = structlog.get_logger()

FLUSH_S = 3.0


@contextmanager
def collecting(settings: Settings, *, flush_s: float = FLUSH_S) -> Iterator[None]:
    """Collect telemetry while the block lasts, if the settings name an endpoint."""
    backend = _connect(settings)
    if backend is None:
        yield
        return
    install(backend)
    try:
        yield
    finally:
        install(None)
        backend.stop(flush_s)


def _connect(settings: Settings) -> Backend | None:
    if settings.otlp_endpoint is None:
        return None
    try:
        from butlers.wire.telemetry.export import OtlpBackend
    except ImportError as error:
        log.warning(
            "telemetry is off: OTEL_EXPORTER_OTLP_ENDPOINT is set, but the exporter is not installed",
            missing=error.name,
            hint="pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
        )
        return None
    log.info("telemetry on", endpoint=settings.otlp_endpoint)
    service = settings.environ.get("OTEL_SERVICE_NAME") or "butlers"
    return OtlpBackend(settings.otlp_endpoint, service)


# -- metrics -------------------------------------------------------------------------------------


STATES = ("ready", "leased", "dead")


def measure_queue(queue: str, depths: Mapping[str, int]) -> None:
    """Record the number of items of a queue by state. A missing state counts as 0."""
    for state in STATES:
        _measure(Instrument.QUEUE_DEPTH, depths.get(state, 0), queue=queue, state=state)


def count_lease_expiries(queue: str, items: int = 1) -> None:
    """Count items that were released because their worker died or was cut off."""
    _measure(Instrument.LEASE_EXPIRIES, items, queue=queue)


def time_session(seconds: float, *, runtime: str, outcome: str, trigger: str) -> None:
    _measure(
        Instrument.SESSION_DURATION, seconds, runtime=runtime, outcome=outcome, trigger=trigger
    )


def count_tokens(kind: str, tokens: int, *, runtime: str) -> None:
    _measure(Instrument.SESSION_TOKENS, tokens, type=kind, runtime=runtime)


def count_cost(usd: float, *, runtime: str) -> None:
    """Record the cost of a session. Do not call it for an unknown price, which is not zero."""
    _measure(Instrument.SESSION_COST, usd, runtime=runtime)


def _measure(instrument: Instrument, value: float, **attributes: str) -> None:
    backend = installed()
    if backend is None:
        return
    butler: Any = get_contextvars().get("butler")
    if butler is not None:
        attributes["butler"] = str(butler)
    backend.measure(instrument, value, attributes)
