"""Measure the scan of thousands of skill folders against the reference reader, and resolving."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import skills_ref

from benchmarks.report import Measured, report
from butlers.skills.reader import scan_skills
from butlers.skills.registry.catalog import (
    RegisteredSkill,
    Release,
    SkillCatalog,
    SkillState,
    parse_catalog,
)
from butlers.skills.registry.resolver import resolve

# The reference takes milliseconds per folder, so a part of the folders is enough.
REFERENCE = 1_000
VERSIONS = 5
NAMED = 20
DEPENDENCIES = 3
NOW = "2026-01-01T00:00:00Z"
BODY = "\n# Use\n\n" + "One more line of instructions, about as long as people write them.\n" * 60


def run(options: argparse.Namespace) -> None:
    count: int = options.skills
    with _skill_folders(count) as root:
        lines = _scans(root, count)
    lines += _resolving(count)
    note = (
        f"{count:,} folders of 4 KB and a script; baseline of the scan = skills-ref's read_properties"
        f" over {min(REFERENCE, count):,} of them;"
        f" of resolving {NAMED} packs = a registry of {NAMED * (DEPENDENCIES + 1)} skills"
    )
    report("skills", lines, note)


@contextmanager
def _skill_folders(count: int) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="butlers-bench-skills-"))
    try:
        for number in range(count):
            _write_skill(root / f"skill-{number}", number)
        yield root
    finally:
        shutil.rmtree(root)


def _write_skill(folder: Path, number: int) -> None:
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "run.py").write_text("import json\n\nprint(json.dumps({}))\n")
    (folder / "SKILL.md").write_text(
        f"---\nname: {folder.name}\n"
        f"description: Does the thing number {number}. Use when the person asks for it.\n"
        "license: MIT\nallowed-tools: Read Bash(git add *)\n"
        f'metadata:\n  author: somebody\n  version: "1.2.{number}"\n---\n{BODY}'
    )


def _scans(root: Path, count: int) -> list[Measured]:
    folders = [root / f"skill-{number}" for number in range(min(REFERENCE, count))]
    half = len(folders) // 2
    # Half before and half after, so that machine load affects both equally.
    theirs = _timed(lambda: [skills_ref.read_properties(folder) for folder in folders[:half]])
    ours = _timed(lambda: _expect(root, count))
    theirs += _timed(lambda: [skills_ref.read_properties(folder) for folder in folders[half:]])
    return [Measured("scan and parse", count / ours, "skills/s", len(folders) / theirs, at_least=5)]


def _expect(root: Path, count: int) -> None:
    scanned = scan_skills(root)
    assert len(scanned.skills) == count, len(scanned.skills)
    assert all(found.reading.skill and not found.reading.diagnostics for found in scanned.skills)


def _resolving(count: int) -> list[Measured]:
    large = _catalogue(count)
    small = _catalogue(NAMED * (DEPENDENCIES + 1))
    content = large.render({})
    loading = _timed(lambda: parse_catalog(content, "bench"))
    took = {id(found): [] for found in (large, small)}
    for _ in range(50):
        for found in (large, small):
            took[id(found)].append(_timed(lambda found=found: _resolve(found)) * 1000)  # type: ignore[misc]
    releases = f"{count:,} x {VERSIONS}"
    return [
        Measured(f"read a registry of {releases} versions", loading * 1000, "ms"),
        Measured(f"resolve in {releases}", median(took[id(large)]), "ms", median(took[id(small)])),
    ]


def _catalogue(count: int) -> SkillCatalog:
    """Return a catalog in which each skill depends on the rest of its group, by version range."""
    group = DEPENDENCIES + 1
    order = random.Random(7)
    skills = {}
    for number in range(count):
        end = number - number % group + group
        needs = tuple(f"skill-{other}@^1" for other in range(number + 1, min(end, count)))
        versions = [f"1.{minor}.{order.randrange(100)}" for minor in range(VERSIONS)]
        releases = {
            version: Release(version, f"sha256:{number:064x}", SkillState.APPROVED, NOW, needs)
            for version in reversed(versions)
        }
        skills[f"skill-{number}"] = RegisteredSkill(f"skill-{number}", "me", releases, NOW, NOW)
    return SkillCatalog(skills)


def _resolve(catalog: SkillCatalog) -> None:
    group = DEPENDENCIES + 1
    found = resolve(catalog, "bench", [f"skill-{number * group}@^1" for number in range(NAMED)])
    assert len(found.packs) == NAMED * group, len(found.packs)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    run(argparse.Namespace(skills=10_000))
