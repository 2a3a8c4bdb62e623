"""Keeps secrets out of every log line, whoever writes it: ours by structlog, libraries' by logging."""

from __future__ import annotations

import logging
import sys
import traceback
from types import TracebackType
from typing import Any

from structlog.typing import EventDict, WrappedLogger

from butlers.domain.redaction import redactor

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_tracebacks = logging.Formatter()


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: after exceptions have become text, before the line is rendered."""
    scrubbed: EventDict = redactor.scrub_data(event)
    return scrubbed


class RedactedRecord(logging.LogRecord):
    """A record whose message and traceback are scrubbed whichever handler asks: some libraries bring
    handlers of their own, and a filter on ours never sees what goes there."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.exc_info:
            # As text, so that no handler formats the exception again, with its values.
            self.exc_text = redactor.scrub(_tracebacks.formatException(self.exc_info))
            self.exc_info = None

    def getMessage(self) -> str:  # noqa: N802  (logging's own name)
        return redactor.scrub(super().getMessage())


class RedactionFilter(logging.Filter):
    """Scrubs all of a record, its extras too. It refuses none."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg, record.args = redactor.scrub(record.getMessage()), None
        except Exception:  # noqa: BLE001  (arguments that do not fit: logging itself says so)
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
    """Install it for the standard library's logs and for the traceback a crash ends with."""
    logging.setLogRecordFactory(RedactedRecord)
    for handler in logging.getLogger().handlers:
        if not any(isinstance(known, RedactionFilter) for known in handler.filters):
            handler.addFilter(RedactionFilter())
    sys.excepthook = _print_scrubbed


def _print_scrubbed(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(redactor.scrub(text))
