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
from butlers.domain.clock import Clock
from butlers.domain.diagnostic import Diagnostic
from butlers.domain.message import RequestContext
from butlers.skills.findings import MAX_FINDINGS, Findings
from butlers.skills.reflexes.core import CORE_REFLEXES
from butlers.skills.reflexes.examples import ambiguities
from butlers.skills.reflexes.positions import FilePosition
from butlers.skills.reflexes.reflex import Reflex, ReflexMatch
from butlers.skills.reflexes.schema import read_reflexes
from butlers.skills.reflexes.values import Moment


@dataclass(frozen=True, slots=True)
class ReflexBook:
    reflexes: tuple[Reflex, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns that the butler advertises to the Switchboard."""
        return tuple(pattern for reflex in self.reflexes for pattern in reflex.patterns)

    def match(self, text: str, now: datetime, zone: ZoneInfo) -> ReflexMatch | None:
        """Return the first reflex that matches the whole message; ``now`` must have a time zone."""
        moment = Moment(now, zone)
        for reflex in (*self.reflexes, *CORE_REFLEXES):
            found = reflex.match(text, moment)
            if found is not None:
                return found
        return None


@dataclass(frozen=True, slots=True)
class OwnerReflexes:
    """The reflexes as sessions apply them: only to the owner's own messages and to local prompts."""

    book: ReflexBook
    clock: Clock
    zone: ZoneInfo
    enabled: bool = True

    def match(self, text: str, request: RequestContext | None) -> ReflexMatch | None:
        if not self.enabled or (request is not None and not request.is_owners):
            return None
        # "In 10 minutes" counts from the time of the message, so that a second run means the same.
        now = request.received_at if request else self.clock.now()
        return self.book.match(text, now, self.zone)


FILE_NAME = "reflex.toml"


def load_reflexes(skills_dir: Path, *, compare: bool = True) -> ReflexBook:
    """Load all ``<skills_dir>/<skill>/reflex.toml`` files. A file with an error adds no reflexes.

    With ``compare``, each reflex is also tried on the examples of the others, which takes longer.
    """
    reflexes: list[Reflex] = []
    diagnostics: list[Diagnostic] = []
    listing = Findings(skills_dir)
    for folder in _skill_folders(skills_dir, listing):
        found, findings = _load_skill(folder)
        reflexes += found
        diagnostics += findings.diagnostics
    if compare:
        diagnostics += islice(ambiguities(reflexes), MAX_FINDINGS)
    return ReflexBook(tuple(reflexes), (*listing.diagnostics, *diagnostics))


def _skill_folders(skills_dir: Path, findings: Findings) -> list[Path]:
    try:
        entries = sorted(skills_dir.iterdir(), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        findings.add("reflex-unreadable", error.strerror or "cannot be read")
        return []
    return [entry for entry in entries if not entry.name.startswith(".")]


def _load_skill(folder: Path) -> tuple[list[Reflex], Findings]:
    findings = Findings(folder / FILE_NAME)
    source = _read_source(findings) if _has_file(findings.file, findings) else None
    document = None if source is None else _parse(source, findings)
    if source is None or document is None:
        return [], findings
    reflexes = read_reflexes(document, folder.name, FilePosition(findings, locate(source)))
    return ([] if findings.has_errors else reflexes), findings


def _has_file(file: Path, findings: Findings) -> bool:
    """Return True if the skill has a reflex file. A broken link counts, so that it is reported."""
    try:
        return file.is_symlink() or file.exists()
    except OSError as error:
        findings.add("reflex-unreadable", error.strerror or "cannot be read")
        return False


MAX_BYTES = 256 * 1024
# tomllib takes quadratic time for a key of thousands of parts.
MAX_DOTS = 200

_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


def _read_source(findings: Findings) -> str | None:
    content = _read_bytes(findings.file, findings)
    return None if content is None else _decode(content, findings)


def _read_bytes(file: Path, findings: Findings) -> bytes | None:
    try:
        if not file.is_file():  # reading a pipe would block
            findings.add("reflex-unreadable", "not a file")
            return None
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        findings.add("reflex-unreadable", error.strerror or "cannot be read")
        return None
    if len(content) > MAX_BYTES:
        findings.add("reflex-too-large", f"a reflex file has at most {MAX_BYTES // 1024} KB")
        return None
    return content


def _decode(content: bytes, findings: Findings) -> str | None:
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", "replace").replace("\r\n", "\n")
        place = place_of(before, len(before))
        findings.add("reflex-encoding", "not UTF-8", at=place, hint="save the file as UTF-8")
        return None


def _parse(source: str, findings: Findings) -> dict[str, Any] | None:
    for number, line in enumerate(source.split("\n"), 1):
        if line.count(".") > MAX_DOTS:
            findings.add("reflex-toml", f"more than {MAX_DOTS} dots in a line", at=Place(number, 1))
            return None
    try:
        return tomllib.loads(source)
    except RecursionError:
        findings.add("reflex-toml", "nested too deeply")
    except ValueError as error:  # TOMLDecodeError, and int() refusing thousands of digits
        findings.add("reflex-toml", _AT.sub("", str(error)), at=_error_place(str(error), source))
    return None


def _error_place(message: str, source: str) -> Place | None:
    at = _AT.search(message)
    if at is None:
        return None
    if at["line"] is None:
        return place_of(source, len(source))
    return Place(int(at["line"]), int(at["column"]))
