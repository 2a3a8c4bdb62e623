"""Structured logs on stderr, as text or JSON, with secrets redacted.

Every line names its butler, session and trace where there is one, and has the same form whether this
package or a library wrote it.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from butlers.config.settings import Settings
from butlers.domain.redaction import redactor
from butlers.domain.terminal import escape_line, escape_text
from butlers.domain.trace import current_trace

OWN_HANDLERS = ("fastmcp",)  # libraries that install handlers of their own when they are imported

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_TRACEBACKS = frozenset({"exception", "stack"})
_tracebacks = logging.Formatter()


def configure_logs(settings: Settings, *, level: int = logging.INFO) -> None:
    # Plain tracebacks: the pretty ones show the values of local variables.
    renderers: list[Processor] = (
        [structlog.processors.JSONRenderer()]
        if settings.log_format == "json"
        else [
            escape_event,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )
    every_line: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*every_line, redact_event, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *every_line, _add_traceback],
            processors=[ProcessorFormatter.remove_processors_meta, redact_event, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)
    redact_logging()
    adopt_library_logs()


def adopt_library_logs() -> None:
    """Send the logs of libraries with handlers of their own through ours. Call it after their import."""
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
    """Show a record's exception, which ``RedactedRecord`` has turned into text."""
    if text := event["_record"].exc_text:
        event["exception"] = text
    return event


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Redact a structlog event. Runs after exceptions became text and before rendering."""
    scrubbed: EventDict = redactor.scrub_data(event)
    return scrubbed


def escape_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape the values of a line of text, so that none adds lines or controls the terminal.

    Only tracebacks keep their line breaks, with an indent.
    """
    return {
        escape_line(key): _escape_value(
            value, _escape_traceback if key in _TRACEBACKS else escape_line
        )
        for key, value in event.items()
    }


def _escape_traceback(text: str) -> str:
    return escape_text(text).replace("\n", "\n  ")


def _escape_value(value: Any, escape: Callable[[str], str]) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    return escape(value if isinstance(value, str) else repr(value))


class RedactedRecord(logging.LogRecord):
    """A log record with redacted message and traceback, for handlers of libraries, which our filter
    does not see."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.exc_info:
            # As text, so that no handler formats the exception again, with its values.
            self.exc_text = redactor.scrub(_tracebacks.formatException(self.exc_info))
            self.exc_info = None

    def getMessage(self) -> str:  # noqa: N802  (logging's own name)
        return redactor.scrub(super().getMessage())


class RedactionFilter(logging.Filter):
    """Redacts a whole record, extras included. It drops none."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg, record.args = redactor.scrub(record.getMessage()), None
        except Exception:  # noqa: BLE001  (arguments that do not fit: logging itself reports them)
            record.msg, record.args = redactor.scrub(str(record.msg)), None
        if record.exc_info:
            record.exc_text = redactor.scrub(_tracebacks.formatException(record.exc_info))
            record.exc_info = None
        if record.stack_info:
            record.stack_info = redactor.scrub(record.stack_info)
        for name in vars(record).keys() - _STANDARD:
            setattr(record, name, redactor.scrub_data(getattr(record, name)))
        return True


def redact_logging() -> None:
    """Redact the standard library's logs, and the traceback of a crash."""
    logging.setLogRecordFactory(RedactedRecord)
    for handler in logging.getLogger().handlers:
        if not any(isinstance(known, RedactionFilter) for known in handler.filters):
            handler.addFilter(RedactionFilter())
    sys.excepthook = _print_redacted


def _print_redacted(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(escape_text(redactor.scrub(text)))
