"""The usage ledger: one line per model request, in one file per day, written before the answer ends.

Every process of a home appends to the same files under a lock, so that a limit holds for all of them
together. A line is written by one `write`: after `kill -9` it is there whole or not at all.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from butlers.config.files import PRIVATE_FILE, make_private_folder
from butlers.domain.session import Usage

FOLDER = "usage"
KEPT_DAYS = 400


@dataclass(frozen=True, slots=True)
class Entry:
    """One request to a model: whose it was, what it used, and what that cost."""

    at: datetime
    session: str
    butler: str
    provider: str
    model: str
    status: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0
    usd: Decimal | None = None  # None: the price is unknown
    estimated: bool = False  # by size: the provider reported no usage

    @classmethod
    def of(cls, usage: Usage, **given: Any) -> Entry:
        return cls(
            input_tokens=usage.input_tokens or 0,
            output_tokens=usage.output_tokens or 0,
            cached_tokens=usage.cached_tokens or 0,
            written_tokens=usage.written_tokens,
            **given,
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def as_line(self) -> bytes:
        shown = {name: getattr(self, name) for name in self.__slots__}
        shown |= {"at": self.at.isoformat(), "usd": None if self.usd is None else str(self.usd)}
        return json.dumps(shown, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Entry | None:
        """Return the entry, or None for a line that a crash of the machine tore."""
        try:
            known = json.loads(line)
            known["at"] = datetime.fromisoformat(known["at"])
            known["usd"] = None if known["usd"] is None else Decimal(known["usd"])
            return cls(**known)
        except (ValueError, TypeError, KeyError, ArithmeticError):
            return None


@dataclass(slots=True)
class Total:
    tokens: int = 0
    usd: Decimal = Decimal(0)
    unpriced: int = 0  # tokens whose price is unknown
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0

    def add(self, entry: Entry) -> None:
        self.tokens += entry.tokens
        self.requests += 1
        self.input_tokens += entry.input_tokens
        self.output_tokens += entry.output_tokens
        self.cached_tokens += entry.cached_tokens
        self.written_tokens += entry.written_tokens
        if entry.usd is None:
            self.unpriced += entry.tokens
        else:
            self.usd += entry.usd

    def __iadd__(self, other: Total) -> Total:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def usage(self) -> Usage:
        """Return the sum as a session's usage; its cost is unknown if a price was."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            cost_usd=None if self.unpriced else self.usd,
            written_tokens=self.written_tokens,
        )


class Ledger:
    """All usage of one home. Sums are kept in memory and follow what other processes append."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER
        self._read_to: dict[Path, int] = {}  # bytes of each file that the sums contain
        self._sums: dict[tuple[datetime, str | None], Total] = {}

    def append(self, entry: Entry) -> None:
        make_private_folder(self._folder)
        path = self._folder / f"{entry.at.astimezone(UTC):%Y-%m-%d}.jsonl"
        if not path.exists():
            self._drop_old(entry.at)
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if torn else b"") + entry.as_line())

    def since(self, moment: datetime) -> Iterator[Entry]:
        """Yield the entries from then on, oldest day first."""
        for path in self._files(moment):
            for entry, _ in _entries(path, 0, None):
                if entry.at >= moment:
                    yield entry

    def total(self, since: datetime, butler: str | None = None) -> Total:
        """Return what was used since then: by one butler, or by all of them."""
        self._follow(since)
        key = (since, butler)
        if key not in self._sums:
            self._sums = {known: sums for known, sums in self._sums.items() if known[0] >= since}
            self._sums[key] = total = Total()
            for path in self._files(since):
                for entry, _ in _entries(path, 0, self._read_to.get(path, 0)):
                    if entry.at >= since and butler in (None, entry.butler):
                        total.add(entry)
        return self._sums[key]

    def session_totals(self, sessions: Collection[str], since: datetime) -> dict[str, Total]:
        """Return what these sessions used; a session without a request is left out."""
        totals: dict[str, Total] = {}
        for entry in self.since(since):
            if entry.session in sessions:
                totals.setdefault(entry.session, Total()).add(entry)
        return totals

    def _follow(self, since: datetime) -> None:
        """Add what was appended since the last look to every sum that it belongs to."""
        for path in self._files(since):
            for entry, end in _entries(path, self._read_to.get(path, 0), None):
                self._read_to[path] = end
                for (moment, butler), total in self._sums.items():
                    if entry.at >= moment and butler in (None, entry.butler):
                        total.add(entry)

    def _files(self, since: datetime) -> list[Path]:
        first = f"{since.astimezone(UTC):%Y-%m-%d}.jsonl"
        return sorted(path for path in self._folder.glob("*.jsonl") if path.name >= first)

    def _drop_old(self, now: datetime) -> None:
        last = f"{now.astimezone(UTC) - timedelta(days=KEPT_DAYS):%Y-%m-%d}.jsonl"
        for path in self._folder.glob("*.jsonl"):
            if path.name < last:
                path.unlink(missing_ok=True)


def _entries(path: Path, start: int, end: int | None) -> Iterator[tuple[Entry, int]]:
    """Yield the whole lines between two offsets, each with the offset behind it."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            while end is None or file.tell() < end:
                line = file.readline()
                if not line.endswith(b"\n"):
                    return
                if (entry := Entry.from_line(line)) is not None:
                    yield entry, file.tell()
    except FileNotFoundError:
        return


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
