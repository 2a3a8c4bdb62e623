"""Collecting begins with the process and ends after everything else, within a bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from butlers.config.settings import Settings
from butlers.wire.telemetry.backend import Backend, install

log = structlog.get_logger()

FLUSH_S = 3.0


@contextmanager
def collecting(settings: Settings, *, flush_s: float = FLUSH_S) -> Iterator[None]:
    """Collect while the block lasts, if the settings name an endpoint to send to."""
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
