"""Records of the key broker: requests that it refused, and, for debugging only, whole exchanges.

Both are files of JSON lines in the home, readable by its owner alone, redacted and bounded: a full file
becomes the older half of the record, and the half before it is removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from butlers.config.files import PRIVATE_FILE, make_private_folder
from butlers.domain.redaction import redactor

log = structlog.get_logger()

FOLDER = "broker"
REFUSED, EXCHANGES = "refused.jsonl", "debug.jsonl"
LARGEST = 4 << 20  # bytes of one file
MAX_PATH, MAX_TEXT = 200, 100_000  # characters


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was not forwarded. ``session`` and ``butler`` are unknown for a token of nobody."""

    at: str
    provider: str
    method: str
    path: str
    status: int
    reason: str
    session: str | None = None
    butler: str | None = None


class BrokerAudit:
    """``debug`` keeps the prompts and answers of all sessions."""

    def __init__(self, home: Path, *, debug: bool = False) -> None:
        self._folder = home / FOLDER
        self.debug = debug

    def refused(self, refusal: Refusal) -> None:
        self._append(REFUSED, asdict(refusal) | {"path": refusal.path[:MAX_PATH]})

    def refusals(self) -> Iterator[dict[str, Any]]:
        """Yield the refusals that are kept, oldest first."""
        for file in (f"{REFUSED}.1", REFUSED):
            yield from self._lines(file)

    def exchanged(self, facts: Mapping[str, Any], asked: bytes, answered: bytes) -> None:
        """Keep one request and its answer, if debugging is on."""
        if self.debug:
            texts = {"request": _text(asked), "answer": _text(answered)}
            self._append(EXCHANGES, {**facts, **texts})

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        line = json.dumps(redactor.scrub_data(dict(record)), ensure_ascii=False) + "\n"
        path = self._folder / name
        try:
            make_private_folder(self._folder)
            if path.exists() and path.stat().st_size > LARGEST:
                path.replace(path.with_name(f"{name}.1"))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, PRIVATE_FILE), "ab") as file:
                file.write(line.encode("utf-8", "replace"))
        except OSError as error:  # the log line of the refusal is there in any case
            log.warning("broker cannot write its record", file=name, error=str(error))

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        try:
            with (self._folder / name).open("rb") as file:
                for line in file:
                    try:
                        yield json.loads(line)
                    except ValueError:
                        continue  # torn by a crash
        except FileNotFoundError:
            return


def _text(raw: bytes) -> str:
    return raw[: 4 * MAX_TEXT].decode("utf-8", "replace")[:MAX_TEXT]
