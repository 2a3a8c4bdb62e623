"""An OTLP/HTTP collector on loopback that keeps what it is sent, decoded from protobuf."""

from __future__ import annotations

import gzip
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Seen:
    """One span as it arrived."""

    name: str
    scope: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    started_ns: int
    ended_ns: int
    failed: bool
    failure: str
    attributes: dict[str, Any]

    @property
    def butler(self) -> str:
        return str(self.attributes.get("butlers.butler"))

    def json(self, name: str) -> Any:
        return json.loads(self.attributes[name])


@dataclass(frozen=True)
class Point:
    metric: str
    value: float  # of a histogram: the sum
    count: int
    attributes: dict[str, Any]


class Collector:
    """``status`` is what it answers; while ``held`` is clear it does not answer at all."""

    def __init__(self, port: int = 0) -> None:
        self.status = 200
        self.held = threading.Event()
        self.held.set()
        self.asked = threading.Event()
        self._bodies: list[tuple[str, bytes]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.held.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, path: str, body: bytes) -> int:
        self.asked.set()
        self.held.wait()
        if self.status == 200:
            self._bodies.append((path, body))
        return self.status

    @property
    def paths(self) -> set[str]:
        return {path for path, _ in self._bodies}

    def spans(self) -> list[Seen]:
        found: list[Seen] = []
        for path, body in list(self._bodies):
            if path == "/v1/traces":
                found += _spans(ExportTraceServiceRequest.FromString(body))
        return found

    def points(self, metric: str) -> list[Point]:
        found: list[Point] = []
        for path, body in list(self._bodies):
            if path == "/v1/metrics":
                found += _points(ExportMetricsServiceRequest.FromString(body))
        return [point for point in found if point.metric == metric]

    def raw(self) -> bytes:
        return b"".join(body for _, body in self._bodies)


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            try:
                self.send_response(collector.take(self.path, body))
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                pass  # the sender no longer waits

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler


def _spans(request: ExportTraceServiceRequest) -> list[Seen]:
    return [
        Seen(
            name=span.name,
            scope=scoped.scope.name,
            service=str(_plain(sent.resource.attributes)["service.name"]),
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            started_ns=span.start_time_unix_nano,
            ended_ns=span.end_time_unix_nano,
            failed=span.status.code == Status.STATUS_CODE_ERROR,
            failure=span.status.message,
            attributes=_plain(span.attributes),
        )
        for sent in request.resource_spans
        for scoped in sent.scope_spans
        for span in scoped.spans
    ]


def _points(request: ExportMetricsServiceRequest) -> list[Point]:
    found: list[Point] = []
    for sent in request.resource_metrics:
        for scoped in sent.scope_metrics:
            for metric in scoped.metrics:
                kind = metric.WhichOneof("data")
                for point in getattr(metric, str(kind)).data_points:
                    histogram = kind == "histogram"
                    value = point.sum if histogram else point.as_double or point.as_int
                    count = point.count if histogram else 1
                    found.append(Point(metric.name, value, count, _plain(point.attributes)))
    return found


def _plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> Any:
    return getattr(value, str(value.WhichOneof("value")))
