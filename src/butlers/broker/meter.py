"""Reads token usage out of an answer while its bytes pass through unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from butlers.broker.providers import Provider
from butlers.domain.session import Usage

LONGEST_LINE = 8 * 2**20  # of a stream; the usage of a longer event is not read
LARGEST_DOCUMENT = 64 * 2**20
BYTES_PER_TOKEN = 4  # where the provider never said how many there were


class Meter:
    """Usage of one answer. Feed it each chunk as it passes; ask for `usage` at any time."""

    def __init__(self, provider: Provider, content_type: str, request_bytes: int) -> None:
        self._read = provider.read_usage
        self._ends = provider.ends
        self._ended = False
        self._readable = True  # a document that is not JSON is no answer
        self._streams = content_type.startswith("text/event-stream")
        self._rest = bytearray()
        self._skipping = False
        self._usage = Usage()
        self._request_bytes = request_bytes
        self._answer_bytes = 0

    def feed(self, chunk: bytes) -> None:
        self._answer_bytes += len(chunk)
        if not self._streams:
            if len(self._rest) + len(chunk) <= LARGEST_DOCUMENT:
                self._rest += chunk
            return
        # A line is copied once: only the unfinished one at the end of a chunk is kept.
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if self._skipping:
                self._skipping = False
            else:
                self._take_line(
                    bytes(self._rest) + chunk[start:end] if self._rest else chunk[start:end]
                )
            self._rest.clear()
            start = end + 1
        self._rest += chunk[start:]
        if len(self._rest) > LONGEST_LINE:
            self._rest.clear()
            self._skipping = True

    def end(self) -> None:
        """Read the rest: a whole JSON document, or a last line without a line break."""
        rest, self._rest = bytes(self._rest), bytearray()
        if self._streams:
            self._take_line(rest)
        else:
            self._take(rest)

    @property
    def usage(self) -> Usage:
        """Tokens that the provider reported, or an estimate by size where it reported none."""
        if self.is_reported:
            return self._usage
        return Usage(
            input_tokens=self._request_bytes // BYTES_PER_TOKEN,
            output_tokens=self._answer_bytes // BYTES_PER_TOKEN,
        )

    @property
    def is_reported(self) -> bool:
        return self._usage.input_tokens is not None

    @property
    def is_complete(self) -> bool:
        """Return whether a stream has had its last event; a document is complete when it has ended."""
        return self._ended if self._streams else self._readable

    def _take_line(self, line: bytes) -> None:
        if not self._ended and any(mark in line for mark in self._ends):
            self._ended = True
        # Most events carry no usage: look before parsing.
        if line.startswith(b"data:") and b'"usage' in line:
            self._take(line[5:])

    def _take(self, document: bytes) -> None:
        try:
            found: Any = json.loads(document)
        except (ValueError, RecursionError):
            self._readable = False
            return
        # Gemini streams a JSON array where it was not asked for events.
        for event in found if isinstance(found, list) else [found]:
            if isinstance(event, Mapping):
                self._usage = self._read(self._usage, event)
