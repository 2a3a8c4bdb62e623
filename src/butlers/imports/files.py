"""Recognize the kind of a file by its content, and open it for import."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid5

from butlers.imports.apple_health import read_apple_health
from butlers.imports.bank_csv import read_bank_csv
from butlers.imports.contacts import read_calendar, read_google_contacts, read_vcards
from butlers.imports.model import (
    MAX_TEXT,
    FileReading,
    ImportOptions,
    ImportUnreadable,
    Row,
    Skipped,
)
from butlers.imports.splitwise import read_splitwise
from butlers.imports.statements import read_ofx, read_qif

NAMESPACE = UUID("7d1c3f0a-5a38-4c0b-9f57-6f1d3c1f9a10")
KINDS = (
    "Apple Health export.zip",
    "bank CSV",
    "OFX",
    "QIF",
    "vCard",
    "ICS",
    "Google contacts CSV",
    "Splitwise CSV",
)


@dataclass(frozen=True, slots=True)
class ImportFile:
    path: Path
    reading: FileReading
    import_id: UUID  # the same for the same content
    skipped: Skipped = field(default_factory=Skipped)

    def rows(self) -> Iterator[Row]:
        """Read the rows, from the start at each call."""
        self.skipped.counts.clear()
        return self.reading.rows(self.skipped)


def open_import(path: Path, options: ImportOptions = ImportOptions()) -> ImportFile:  # noqa: B008
    """Open the file. Raises ImportUnreadable for a file of no known kind."""
    try:
        reading = read_apple_health(path) or _read_text(path, options)
        import_id = uuid5(NAMESPACE, _digest(path))
    except OSError as error:
        raise ImportUnreadable(f"{path} cannot be read: {error.strerror}") from error
    return ImportFile(path, reading, import_id)


def _read_text(path: Path, options: ImportOptions) -> FileReading:
    if path.stat().st_size > MAX_TEXT:
        raise ImportUnreadable(f"{path} is larger than {MAX_TEXT // 2**20} MB")
    text = _decode(path.read_bytes())
    if text is not None:
        for found in (
            read_vcards(text),
            read_calendar(text),
            read_ofx(text, options),
            read_qif(text, options),
            read_google_contacts(text),
            read_splitwise(text, options),
            read_bank_csv(text, options),
        ):
            if found is not None:
                return found
    raise ImportUnreadable(f"{path} is of no known kind", hint=f"known kinds: {', '.join(KINDS)}")


def _decode(content: bytes) -> str | None:
    """Return the text: UTF-8, UTF-16 with a mark, else Windows-1252. None for binary content."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    if b"\0" in content[:4096]:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
