"""Read skills: one folder into a SkillSpec, and a folder of skills into a list."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from butlers.domain.diagnostic import Diagnostic
from butlers.skills.findings import Findings, quoted
from butlers.skills.formats import manifest, skill_md
from butlers.skills.formats.base import Reading, SkillFile, SkillFormat
from butlers.skills.skill import SkillSpec
from butlers.skills.tree import IGNORED_NAMES, resolve_inside

MAX_FILE = 1024 * 1024

MAX_SCAN_DEPTH = 16
MAX_SCANNED_FOLDERS = 200_000
MAX_SCANNED_SKILLS = 20_000
SKIPPED_FOLDERS = IGNORED_NAMES | {"node_modules"}
SKILL_FILES = frozenset({"skill.md", "manifest.json"})  # in lower case


def named_folder(folder: Path) -> Path:
    """Return a path whose last part is the folder's name, also for `.` and `..`."""
    return folder if folder.name not in ("", "..") else Path(os.path.abspath(folder))


def read_skill(folder: Path, *, shared: Path | None = None) -> Reading:
    """Read a skill from its manifest.json, its SKILL.md, or both.

    With both, the manifest gives the fields and SKILL.md the instructions. Links may point into the
    folder or into ``shared``. Problems in the folder become findings; nothing is raised for them.
    """
    folder = named_folder(folder)
    findings = Findings(folder)
    try:
        present = os.listdir(folder)
    except OSError as error:
        findings.add("skill-unreadable", error.strerror or "cannot be read")
        return Reading(None, tuple(findings.diagnostics))
    roots = (folder,) if shared is None else (folder, shared)
    pack = _read(manifest.FORMAT, folder, present, roots, findings)
    text = _read(skill_md.FORMAT, folder, present, roots, findings)
    if pack is None and text is None:
        if not findings.diagnostics:
            findings.add(
                "skill-missing",
                "no SKILL.md and no manifest.json",
                hint="a skill is a folder that contains a SKILL.md",
            )
        return Reading(None, tuple(findings.diagnostics))
    if pack is not None and manifest.FOREIGN in pack.traits and text is not None and text.skill:
        findings.add(
            "manifest-foreign",
            "manifest.json is not a pack's; only SKILL.md was read",
            file=folder / "manifest.json",
        )
        pack = None
    skill = _joined(pack, text)
    readings = [reading for reading in (pack, text) if reading is not None]
    found = [*findings.diagnostics]
    for reading in readings:
        found += reading.diagnostics
    traits = text.traits if text else frozenset()
    return Reading(skill, tuple(found), traits, readings[0].where)


def read_skill_md(folder: Path) -> Reading | None:
    """Read SKILL.md alone, ignoring a manifest. Return None if it is missing or unreadable."""
    return _read(skill_md.FORMAT, folder, ["SKILL.md"], (folder,), Findings(folder))


def _joined(pack: Reading | None, text: Reading | None) -> SkillSpec | None:
    from_manifest = pack.skill if pack else None
    from_text = text.skill if text else None
    if from_manifest is None or from_text is None:
        return from_manifest or from_text
    body = "" if _is_generated(from_text, from_manifest) else from_text.body
    return from_manifest.evolve(body=body, has_skill_md=True)


def _is_generated(from_text: SkillSpec, from_manifest: SkillSpec) -> bool:
    """Return True if SKILL.md was generated for a pack that has context files only."""
    return not from_text.body and from_text.context == from_manifest.context


def _read(
    form: SkillFormat, folder: Path, present: list[str], roots: tuple[Path, ...], findings: Findings
) -> Reading | None:
    """Read this format's file. Return None if it is missing or unreadable."""
    proper = form.file_names[0]
    spelled = [name for name in form.file_names if name in present]
    spelled += sorted(name for name in present if name.lower() == proper.lower())
    if not spelled:
        return None
    file = folder / spelled[0]
    if spelled[0] != proper:
        findings.add(
            "skill-file-name",
            f"the file is named {spelled[0]}",
            file=file,
            hint=f"rename it to {proper}: other clients look for that name only",
        )
    content = _bytes(file, roots, findings)
    return None if content is None else form.read(SkillFile(file, content))


def _bytes(file: Path, roots: tuple[Path, ...], findings: Findings) -> bytes | None:
    try:
        mode = os.lstat(file).st_mode
        if stat.S_ISLNK(mode):
            if resolve_inside(file, *roots) is None:
                findings.add(
                    "tree-link-leaves",
                    "a link that points outside the skill is not read",
                    file=file,
                )
                return None
            mode = os.stat(file).st_mode
        if not stat.S_ISREG(mode):  # reading a pipe would block forever
            findings.add("skill-unreadable", "not a file", file=file)
            return None
        with open(file, "rb", buffering=0) as stream:
            content = stream.read(MAX_FILE + 1)
    except OSError as error:
        findings.add("skill-unreadable", error.strerror or "cannot be read", file=file)
        return None
    if len(content) > MAX_FILE:
        findings.add("skill-too-large", f"more than {MAX_FILE // 1024} KB", file=file)
        return None
    return content


@dataclass(frozen=True, slots=True)
class ScannedSkill:
    folder: Path
    reading: Reading


@dataclass(frozen=True, slots=True)
class Scan:
    """Skills of one folder, sorted by path. ``diagnostics`` are the problems of the scan itself."""

    skills: tuple[ScannedSkill, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def scan_skills(
    root: Path,
    shared: Path | None = None,
    *,
    max_depth: int = MAX_SCAN_DEPTH,
    max_skills: int = MAX_SCANNED_SKILLS,
) -> Scan:
    """Read all skills below ``root``. Reaching a limit adds an error to the diagnostics.

    Links between folders may point into ``root`` or into ``shared``.
    """
    findings = Findings(root)
    roots = (root,) if shared is None else (root, shared)
    skills: list[ScannedSkill] = []
    for folder in _skill_folders(root, roots, max_depth, findings):
        if len(skills) == max_skills:
            findings.add("scan-too-many", f"more than {max_skills} skills")
            break
        skills.append(ScannedSkill(folder, read_skill(folder, shared=shared).without_places()))
    return Scan(tuple(skills), (*findings.diagnostics, *_shadows(skills)))


def _skill_folders(
    root: Path, roots: tuple[Path, ...], max_depth: int, findings: Findings
) -> Iterator[Path]:
    """Yield folders that hold a skill, sorted by path; folders below a skill are not searched.

    A folder that links lead to several times is searched once.
    """
    waiting = [(str(root), 0)]
    searched: set[tuple[int, int]] = set()
    while waiting:
        folder, depth = waiting.pop()
        if _is_known(folder, searched):
            continue
        if len(searched) > MAX_SCANNED_FOLDERS:
            findings.add("scan-too-many", f"more than {MAX_SCANNED_FOLDERS:,} folders")
            return
        names, below = _list_folder(folder, roots, findings)
        if depth and not SKILL_FILES.isdisjoint(names):
            yield Path(folder)
        elif depth < max_depth:
            waiting += [(path, depth + 1) for path in sorted(below, reverse=True)]
        elif below:
            findings.add("scan-too-many", f"folders more than {max_depth} deep", file=Path(folder))


def _is_known(folder: str, searched: set[tuple[int, int]]) -> bool:
    try:
        info = os.stat(folder)
    except OSError:
        return False  # listing it reports the error
    known = (info.st_dev, info.st_ino) in searched
    searched.add((info.st_dev, info.st_ino))
    return known


def _list_folder(
    folder: str, roots: tuple[Path, ...], findings: Findings
) -> tuple[set[str], list[str]]:
    """Return all names in lower case, and the paths of the subfolders to search."""
    names: set[str] = set()
    below = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.add(entry.name.lower())
                if entry.name not in SKIPPED_FOLDERS and entry.is_dir():
                    path = Path(entry.path)
                    if entry.is_symlink() and resolve_inside(path, *roots) is None:
                        findings.add(
                            "tree-link-leaves", f"{quoted(entry.name)} is not followed", file=path
                        )
                    else:
                        below.append(entry.path)
    except OSError as error:
        findings.add("skill-unreadable", error.strerror or str(error), file=Path(folder))
    return names, below


def _shadows(skills: list[ScannedSkill]) -> list[Diagnostic]:
    """Warn about every skill whose name an earlier one has."""
    first: dict[str, Path] = {}
    found: list[Diagnostic] = []
    for entry in skills:
        if entry.reading.skill is None:
            continue
        name = entry.reading.skill.label
        other = first.setdefault(name, entry.folder)
        if other is not entry.folder:
            Findings(entry.folder, found).add(
                "skill-shadows", f"{quoted(name)} is also in {other}", hint="rename one of them"
            )
    return found
