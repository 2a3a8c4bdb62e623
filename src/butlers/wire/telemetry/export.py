"""Sends spans and metrics to an OTLP/HTTP collector. Only this file imports the OpenTelemetry SDK.

The SDK sends in its own threads: while the collector is slow or down, the oldest spans of a bounded queue
are dropped and one warning is logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from butlers.domain.trace import TraceContext
from butlers.wire.telemetry.backend import Attributes, Instrument

log = structlog.get_logger()

NAME = "butlers"
REQUEST_S = 5.0  # one attempt to reach the collector
SPANS_EVERY_MS = 1_000
METRICS_EVERY_MS = 10_000

_chosen: ContextVar[TraceContext] = ContextVar("chosen_ids")


class OtlpBackend:
    def __init__(self, endpoint: str, service: str) -> None:
        # It logs each failed attempt; we log when the collector goes down and comes back.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        base, collector = endpoint.rstrip("/"), _Collector(endpoint)
        resource = Resource.create({"service.name": service})
        # Private providers, not the global ones: see the package's docstring.
        self._tracing = TracerProvider(
            resource=resource, id_generator=_OwnIds(), shutdown_on_exit=False
        )
        spans = _SpanExporter(f"{base}/v1/traces", collector)
        self._tracing.add_span_processor(
            BatchSpanProcessor(spans, schedule_delay_millis=SPANS_EVERY_MS)
        )
        figures = _MetricExporter(f"{base}/v1/metrics", collector)
        reader = PeriodicExportingMetricReader(figures, export_interval_millis=METRICS_EVERY_MS)
        self._metering = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._tracer = self._tracing.get_tracer(NAME)
        self._instruments = _instruments(self._metering)

    def start(
        self, name: str, context: TraceContext, parent: TraceContext | None, *, serves: bool
    ) -> _Recording:
        token = _chosen.set(context)
        try:
            kind = SpanKind.SERVER if serves else SpanKind.INTERNAL
            return _Recording(self._tracer.start_span(name, _above(parent), kind))
        finally:
            _chosen.reset(token)

    def measure(self, instrument: Instrument, value: float, attributes: Attributes) -> None:
        self._instruments[instrument](value, dict(attributes))

    def stop(self, within_s: float) -> None:
        """Send the remaining data for at most ``within_s`` seconds; the rest is lost."""
        finishing = [
            threading.Thread(target=provider.shutdown, daemon=True)
            for provider in (self._tracing, self._metering)
        ]
        for thread in finishing:
            thread.start()
        deadline = time.monotonic() + within_s
        for thread in finishing:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in finishing):
            log.warning("telemetry was not sent in time; the rest is lost", seconds=within_s)


class _Recording:
    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, attributes: Attributes, failure: str | None) -> None:
        self._span.set_attributes(dict(attributes))
        if failure is not None:
            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end()


class _OwnIds(IdGenerator):
    """Uses the ids of butlers.domain.trace, which log lines and other butlers already have."""

    def generate_span_id(self) -> int:
        return int(_chosen.get().span_id, 16)

    def generate_trace_id(self) -> int:
        return int(_chosen.get().trace_id, 16)


def _above(parent: TraceContext | None) -> Context:
    if parent is None:
        return Context()
    above = SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(above), Context())


def _instruments(metering: MeterProvider) -> dict[Instrument, Any]:
    meter = metering.get_meter(NAME)
    return {
        Instrument.QUEUE_DEPTH: meter.create_gauge(Instrument.QUEUE_DEPTH, "{item}").set,
        Instrument.LEASE_EXPIRIES: meter.create_counter(Instrument.LEASE_EXPIRIES, "{item}").add,
        Instrument.SESSION_DURATION: meter.create_histogram(
            Instrument.SESSION_DURATION, "s"
        ).record,
        Instrument.SESSION_TOKENS: meter.create_counter(Instrument.SESSION_TOKENS, "{token}").add,
        Instrument.SESSION_COST: meter.create_counter(Instrument.SESSION_COST, "USD").add,
    }


class _Collector:
    """Logs when the collector stops and resumes accepting data."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._away = False
        self._lock = threading.Lock()  # spans and metrics are sent by two threads

    def report(self, accepted: bool) -> None:
        with self._lock:
            if accepted and self._away:
                log.info("the collector is back", endpoint=self._endpoint)
            elif not accepted and not self._away:
                log.warning(
                    "the collector does not accept data; telemetry is lost", endpoint=self._endpoint
                )
            self._away = not accepted


class _SpanExporter(OTLPSpanExporter):
    def __init__(self, endpoint: str, collector: _Collector) -> None:
        super().__init__(endpoint=endpoint, timeout=REQUEST_S)
        self._collector = collector

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._collector.report(result is SpanExportResult.SUCCESS)
        return result


class _MetricExporter(OTLPMetricExporter):
    def __init__(self, endpoint: str, collector: _Collector) -> None:
        super().__init__(endpoint=endpoint, timeout=REQUEST_S)
        self._collector = collector

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = REQUEST_S * 1000, **_: Any
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis)
        self._collector.report(result is MetricExportResult.SUCCESS)
        return result
