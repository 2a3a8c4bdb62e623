"""The bytes of a reflex file, read as TOML without trusting them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from butlers.config.locate import Place, locate, place_of
from butlers.skills.reflexes.report import Report

MAX_BYTES = 256 * 1024
# tomllib takes quadratic time for a key of thousands of parts; nobody writes one of two hundred.
MAX_DOTS = 200

_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


def read_document(file: Path, report: Report) -> dict[str, Any] | None:
    """The document, its places set in the report; None, and a problem reported, if unusable."""
    content = _read_bytes(file, report)
    source = None if content is None else _decode(content, report)
    document = None if source is None else _parse(source, report)
    if document is not None and source is not None:
        report.places = locate(source)
    return document


def _read_bytes(file: Path, report: Report) -> bytes | None:
    try:
        if not file.is_file():  # reading a pipe would wait for ever
            report.error("reflex-unreadable", "not a file")
            return None
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        report.error("reflex-unreadable", error.strerror or "can not be read")
        return None
    if len(content) > MAX_BYTES:
        report.error("reflex-too-large", f"a reflex file has at most {MAX_BYTES // 1024} KB")
        return None
    return content


def _decode(content: bytes, report: Report) -> str | None:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", "replace").replace("\r\n", "\n")
        place = place_of(before, len(before))
        report.error("reflex-encoding", "not UTF-8", place=place, hint="save the file as UTF-8")
        return None


def _parse(source: str, report: Report) -> dict[str, Any] | None:
    for number, line in enumerate(source.split("\n"), 1):
        if line.count(".") > MAX_DOTS:
            report.error(
                "reflex-toml", f"more than {MAX_DOTS} dots in a line", place=Place(number, 1)
            )
            return None
    try:
        return tomllib.loads(source)
    except RecursionError:
        report.error("reflex-toml", "nested too deeply")
    except ValueError as error:  # TOMLDecodeError, and int() refusing thousands of digits
        report.error("reflex-toml", _AT.sub("", str(error)), place=_error_place(str(error), source))
    return None


def _error_place(message: str, source: str) -> Place | None:
    at = _AT.search(message)
    if at is None:
        return None
    if at["line"] is None:
        return place_of(source, len(source))
    return Place(int(at["line"]), int(at["column"]))
