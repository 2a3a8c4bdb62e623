"""A folder of skills, read once; the next time only what has changed since is read again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import SkillError, SkillTooLarge
from butlers.skills.digest import digest_tree
from butlers.skills.findings import Findings, quoted
from butlers.skills.formats.base import Reading
from butlers.skills.reader import read_skill
from butlers.skills.tree import LEFT_BEHIND, Tree, resolve_inside, walk

MAX_DEPTH = 4
MAX_SKILLS = 20_000
_SKIPPED = LEFT_BEHIND | {"node_modules"}
_MARKERS = frozenset({"skill.md", "manifest.json"})
# Within this long after a change, a file may change again without its times showing it.
_RACY_NS = 50_000_000

Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """One skill's folder; the hash is empty where the folder can not be hashed."""

    folder: Path
    reading: Reading
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Scanned:
    skills: tuple[Found, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    reread: int = 0


@dataclass(frozen=True, slots=True)
class _Kept:
    """``stamps`` are of the folder and everything in it: a new name changes its folder's times."""

    stamps: tuple[tuple[str, Stamp], ...]
    found: Found
    settled: bool = False

    def is_unchanged(self) -> bool:
        try:
            for path, (size, changed, inode_changed, inode) in self.stamps:
                now = os.lstat(path)
                if (
                    now.st_ctime_ns != inode_changed
                    or now.st_mtime_ns != changed
                    or now.st_size != size
                    or now.st_ino != inode
                ):
                    return False
        except OSError:
            return False
        return self.settled


@dataclass(slots=True)
class SkillScanner:
    """Scans one root again and again. ``shared`` is where links may lead besides."""

    root: Path
    shared: Path | None = None
    max_depth: int = MAX_DEPTH
    max_skills: int = MAX_SKILLS
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _skills: tuple[Found, ...] = ()
    _shadows: tuple[Diagnostic, ...] = ()

    def scan(self) -> Scanned:
        """All skills below the root by path. A bound that is reached is an error, not a short list."""
        findings = Findings(self.root)
        kept: dict[str, _Kept] = {}
        reread = 0
        for folder, entry in self._walk(findings):
            before = self._kept.get(folder)
            reread += before is None or entry.found is not before.found
            kept[folder] = entry
        if reread or len(kept) != len(self._kept):
            self._skills = tuple(entry.found for entry in kept.values())
            self._shadows = tuple(_shadows(self._skills))
        self._kept = kept
        return Scanned(self._skills, (*findings.diagnostics, *self._shadows), reread)

    def _walk(self, findings: Findings) -> Iterator[tuple[str, _Kept]]:
        """Folders that hold a skill, in the order of their names; not below another skill."""
        count = 0
        waiting = [(str(self.root), 0)]
        while waiting:
            folder, depth = waiting.pop()
            entry, below = self._visit(folder, depth, findings)
            if entry is not None:
                count += 1
                if count > self.max_skills:
                    findings.add("scan-too-many", f"more than {self.max_skills} skills")
                    return
                yield folder, entry
            elif depth < self.max_depth:
                waiting += [(path, depth + 1) for path in sorted(below, reverse=True)]
            elif below:
                findings.add(
                    "scan-too-many", f"folders more than {self.max_depth} deep", file=Path(folder)
                )

    def _visit(self, folder: str, depth: int, findings: Findings) -> tuple[_Kept | None, list[str]]:
        """The skill that lies here, or the folders to look into."""
        before = self._kept.get(folder)
        if before is not None and before.is_unchanged():
            return before, []
        names, below = self._listing(folder, findings)
        if depth and not _MARKERS.isdisjoint(names):
            return self._read(folder, before), []
        return None, below

    def _read(self, folder: str, before: _Kept | None) -> _Kept:
        path = Path(folder)
        started = time.time_ns()
        try:
            top = os.lstat(folder)
            tree = walk(path)
        except OSError as error:
            return _Kept((), _unlisted(path, self.shared, SkillError(str(error))))
        except SkillError as error:
            return _Kept((), _unlisted(path, self.shared, error))
        stamps = [(folder, (top.st_size, top.st_mtime_ns, top.st_ctime_ns, top.st_ino))]
        stamps += [(f"{folder}/{entry.path}", entry.stamp) for entry in tree.entries]
        # Behind a linked folder only its own times would tell of new names.
        settled = not path.is_symlink() and all(
            stamp[2] < started - _RACY_NS for _, stamp in stamps
        )
        digest = _digest(tree)
        if before is not None and digest and digest == before.found.digest:
            return _Kept(tuple(stamps), before.found, settled)
        found = Found(path, read_skill(path, shared=self.shared).without_places(), digest)
        return _Kept(tuple(stamps), found, settled)

    def _listing(self, folder: str, findings: Findings) -> tuple[set[str], list[str]]:
        names: set[str] = set()
        below = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    names.add(entry.name.lower())
                    if entry.name not in _SKIPPED and entry.is_dir():
                        if entry.is_symlink() and not self._may_follow(entry, findings):
                            continue
                        below.append(entry.path)
        except OSError as error:
            findings.add("skill-unreadable", error.strerror or str(error), file=Path(folder))
        return names, below

    def _may_follow(self, entry: os.DirEntry[str], findings: Findings) -> bool:
        path = Path(entry.path)
        roots = (self.root,) if self.shared is None else (self.root, self.shared)
        if resolve_inside(path, *roots) is not None:
            return True
        findings.add("tree-link-leaves", f"{quoted(entry.name)} is not followed", file=path)
        return False


def _digest(tree: Tree) -> str:
    try:
        return digest_tree(tree)
    except SkillError:
        return ""


def _unlisted(path: Path, shared: Path | None, error: SkillError) -> Found:
    """A skill whose files can not all be listed is still read, and says so."""
    reading = read_skill(path, shared=shared)
    findings = Findings(path)
    code = "tree-too-many" if isinstance(error, SkillTooLarge) else "skill-unreadable"
    findings.add(code, error.message, hint=error.hint)
    told = (*reading.diagnostics, *findings.diagnostics)
    return Found(path, replace(reading, diagnostics=told))


def _shadows(skills: tuple[Found, ...]) -> list[Diagnostic]:
    """Which name means which skill must never be a matter of order."""
    first: dict[str, Path] = {}
    found: list[Diagnostic] = []
    for entry in skills:
        if entry.reading.skill is None:
            continue
        name = entry.reading.skill.label
        other = first.setdefault(name, entry.folder)
        if other is not entry.folder:
            findings = Findings(entry.folder, found)
            findings.add(
                "skill-shadows", f"{quoted(name)} is also in {other}", hint="rename one of them"
            )
    return found
