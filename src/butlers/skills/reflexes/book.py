"""All reflexes of a butler, loaded from its skill folders."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from butlers.config.locate import Place, locate, place_of
from butlers.domain.diagnostic import Diagnostic
from butlers.skills.reflexes.examples import ambiguities
from butlers.skills.reflexes.reflex import Reflex, ReflexMatch
from butlers.skills.reflexes.report import MAX_PROBLEMS, Report
from butlers.skills.reflexes.schema import read_reflexes
from butlers.skills.reflexes.values import Moment


@dataclass(frozen=True, slots=True)
class ReflexBook:
    reflexes: tuple[Reflex, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns that the butler advertises to the Switchboard."""
        return tuple(reflex.pattern for reflex in self.reflexes)

    def match(self, text: str, now: datetime, zone: ZoneInfo) -> ReflexMatch | None:
        """Return the first reflex that matches the whole message; ``now`` must have a time zone."""
        moment = Moment(now, zone)
        for reflex in self.reflexes:
            found = reflex.match(text, moment)
            if found is not None:
                return found
        return None


FILE_NAME = "reflex.toml"


def load_reflexes(skills_dir: Path) -> ReflexBook:
    """Load all ``<skills_dir>/<skill>/reflex.toml`` files. A file with an error adds no reflexes."""
    reflexes: list[Reflex] = []
    diagnostics: list[Diagnostic] = []
    listing = Report(skills_dir)
    for folder in _skill_folders(skills_dir, listing):
        found, report = _load_skill(folder)
        reflexes += found
        diagnostics += report.diagnostics
    return ReflexBook(
        tuple(reflexes),
        (*listing.diagnostics, *diagnostics, *islice(ambiguities(reflexes), MAX_PROBLEMS)),
    )


def _skill_folders(skills_dir: Path, report: Report) -> list[Path]:
    try:
        entries = sorted(skills_dir.iterdir(), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        report.error("reflex-unreadable", error.strerror or "cannot be read")
        return []
    return [entry for entry in entries if not entry.name.startswith(".")]


def _load_skill(folder: Path) -> tuple[list[Reflex], Report]:
    report = Report(folder / FILE_NAME)
    if not _has_file(report.file, report):
        return [], report
    document = read_document(report.file, report)
    if document is None:
        return [], report
    reflexes = read_reflexes(document, folder.name, report)
    return ([] if report.failed else reflexes), report


def _has_file(file: Path, report: Report) -> bool:
    """Return True if the skill has a reflex file. A broken link counts, so that it is reported."""
    try:
        return file.is_symlink() or file.exists()
    except OSError as error:
        report.error("reflex-unreadable", error.strerror or "cannot be read")
        return False


MAX_BYTES = 256 * 1024
# tomllib takes quadratic time for a key of thousands of parts.
MAX_DOTS = 200

_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


def read_document(file: Path, report: Report) -> dict[str, Any] | None:
    """Parse the file and set the report's places. Report a problem and return None on failure."""
    content = _read_bytes(file, report)
    source = None if content is None else _decode(content, report)
    document = None if source is None else _parse(source, report)
    if document is not None and source is not None:
        report.places = locate(source)
    return document


def _read_bytes(file: Path, report: Report) -> bytes | None:
    try:
        if not file.is_file():  # reading a pipe would block
            report.error("reflex-unreadable", "not a file")
            return None
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        report.error("reflex-unreadable", error.strerror or "cannot be read")
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
