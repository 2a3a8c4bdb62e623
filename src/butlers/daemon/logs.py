"""Structured logs on stderr: text for a person, JSON for a machine.

Every line says which butler, session and trace it belongs to, where there is one, and every line has the same
form, whether we or a library wrote it.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from butlers.config.settings import Settings
from butlers.daemon.redact_logs import redact_event, redact_logging
from butlers.domain.trace import current_trace

OWN_HANDLERS = ("fastmcp",)  # libraries that write past the root logger once they are imported


def configure_logs(settings: Settings, *, level: int = logging.INFO) -> None:
    # Plain tracebacks: the pretty ones show the values of local variables.
    renderer: Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    every_line: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*every_line, redact_event, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *every_line, _add_traceback],
            processors=[ProcessorFormatter.remove_processors_meta, redact_event, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    redact_logging()
    adopt_library_logs()


def adopt_library_logs() -> None:
    """Have libraries that install handlers of their own write as everybody does. Call it once they are
    imported."""
    for name in OWN_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


def add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    trace = current_trace()
    if trace is not None:
        event.setdefault("trace", trace.trace_id)
    return event


def _add_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A record's exception is text already when it comes here (``redact_logs``)."""
    if text := event["_record"].exc_text:
        event["exception"] = text
    return event
