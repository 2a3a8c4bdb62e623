"""A butler's skill folders, read for reflexes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from butlers.domain.diagnostic import Diagnostic
from butlers.skills.reflexes.book import ReflexBook
from butlers.skills.reflexes.examples import ambiguities
from butlers.skills.reflexes.reading import read_document
from butlers.skills.reflexes.reflex import Reflex
from butlers.skills.reflexes.report import MAX_PROBLEMS, Report
from butlers.skills.reflexes.schema import read_reflexes

FILE_NAME = "reflex.toml"


def load_reflexes(skills_dir: Path) -> ReflexBook:
    """All reflexes of ``<skills_dir>/<skill>/reflex.toml``. A file with an error gives none."""
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
        report.error("reflex-unreadable", error.strerror or "can not be read")
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
    """Whether the skill has a reflex file; a link to nowhere counts, so that it is reported."""
    try:
        return file.is_symlink() or file.exists()
    except OSError as error:
        report.error("reflex-unreadable", error.strerror or "can not be read")
        return False
