"""Measure scanning and checking of skill folders against the reference reader, and resolving."""

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
from butlers.skills.check.rules import check
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
CHECKED = 500
VERSIONS = 5
NAMED = 20
DEPENDENCIES = 3
NOW = "2026-01-01T00:00:00Z"
PARAGRAPHS = (
    "\n## Before you start\n\nCheck the options — then run the tool in the folder of the project.\n",
    "- **field**: value of the field (see [the guide](references/guide.md))\n",
    "```bash\npython scripts/run.py --input data.json | jq .name\nexport FOO=1\n```\n\n",
    "The person asks for a table of values; read the file, compare it, and write the answer. " * 4
    + "\n\n",
)
BODY = "\n# Use\n\n" + "One more line of instructions, about as long as people write them.\n" * 60


def run(options: argparse.Namespace) -> None:
    count: int = options.skills
    with _skill_folders(count) as root:
        lines = _scans(root, count)
    with _public_like_folders(CHECKED) as root:
        lines += _checks(root)
    lines += _resolving(count)
    note = (
        f"{count:,} folders of 4 KB and a script; baseline of the scan = skills-ref's read_properties"
        f" over {min(REFERENCE, count):,} of them;"
        f" of checking {CHECKED} folders like public ones = skills-ref's validate, CPU time of both;"
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


@contextmanager
def _public_like_folders(count: int) -> Iterator[Path]:
    """Write skills of the size of public ones: 3 to 10 KB of instructions, references, scripts."""
    order = random.Random(11)
    root = Path(tempfile.mkdtemp(prefix="butlers-bench-checks-"))
    try:
        for number in range(count):
            folder = root / f"skill-{number}"
            _write_skill(folder, number)
            _append_text(folder / "SKILL.md", order.randrange(3_000, 10_000) - len(BODY), order)
            for name in ("guide", "api", "examples")[: order.randrange(1, 4)]:
                _append_text(
                    folder / "references" / f"{name}.md", order.randrange(2_000, 12_000), order
                )
            _append_script(folder / "scripts" / "run.py", order.randrange(10, 60))
            if number % 2:
                (folder / "scripts" / "go.sh").write_text(
                    "#!/bin/bash\nset -e\nOUT=x\n" + 'echo "$OUT" | tee log.txt\n' * 30
                )
        yield root
    finally:
        shutil.rmtree(root)


def _append_text(file: Path, size: int, order: random.Random) -> None:
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as writing:
        while writing.tell() < size:
            writing.write(order.choice(PARAGRAPHS))


def _append_script(file: Path, functions: int) -> None:
    with file.open("a") as writing:
        for number in range(functions):
            writing.write(
                f"\n\ndef step_{number}(value):\n"
                "    return json.dumps({'value': value, 'home': os.environ.get('HOME')})\n"
            )


def _checks(root: Path) -> list[Measured]:
    folders = sorted(root.iterdir())
    ours, theirs = [], []
    for _ in range(3):
        theirs.append(_cpu_time(lambda: [skills_ref.validate(folder) for folder in folders]))
        ours.append(_cpu_time(lambda: [_expect_clean(folder) for folder in folders]))
    scale = 1_000 / len(folders)
    return [
        Measured(
            "check, CPU seconds per 1,000", min(ours) * scale, "s", min(theirs) * scale, at_most=1
        )
    ]


def _expect_clean(folder: Path) -> None:
    checked = check(folder)
    assert not checked.diagnostics, checked.diagnostics[0]


def _cpu_time(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


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
