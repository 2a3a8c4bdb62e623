"""Measure a folder of skills: how many are read, valid and installed, why others are refused, and CPU time.

``python -m benchmarks.skills_corpus FOLDER`` works on any clone of a collection; nothing is changed in it.
``--make N`` first writes N skills of our own, in the shapes and proportions of public ones, into FOLDER.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import skills_ref
import yaml

from butlers.domain.errors import InvalidSkill, SkillError
from butlers.skills.check.rules import check
from butlers.skills.install.collection import find_skills, folder_files, read_file_of
from butlers.skills.install.install import RegistryInstaller
from butlers.skills.reader import read_skill
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.search import SkillIndex, index_folder

PER_HOME = 100  # skills that are installed into one registry
QUERIES = ("review code", "pdf", "send mail", "database migration", "image", "test", "deploy cloud")
BODY = "\n# Use\n\nRead the request, do one step after the other, and say what was done.\n" * 20
TOPICS = ("pdf", "mail", "review", "deploy", "image", "chart", "notes", "query", "test", "release")


@dataclass(slots=True)
class Corpus:
    """Counts and CPU seconds of one run."""

    folders: list[Path]
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)

    def measure(self, name: str, accepts: Callable[[Path], bool]) -> None:
        """Count the folders that are accepted, and the CPU time of all of them."""
        started = time.process_time()
        self.counts[name] = sum(accepts(folder) for folder in self.folders)
        self.seconds[name] = time.process_time() - started

    def as_dict(self) -> dict[str, Any]:
        scale = 1_000 / max(1, len(self.folders))
        return {
            "skills": len(self.folders),
            "accepted": dict(self.counts),
            "cpu_s_per_1000": {name: round(took * scale, 2) for name, took in self.seconds.items()},
            "refused": dict(self.refused.most_common()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skills_corpus", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of skills, such as a clone")
    parser.add_argument("--make", type=int, metavar="N", help="write N skills of our own there")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if options.make:
        write_corpus(options.folder, options.make)
    found = run(options.folder)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)


def run(root: Path) -> dict[str, Any]:
    skills = find_skills(folder_files(root), read_file_of(root)).skills
    corpus = Corpus([root / skill.path for skill in skills])
    corpus.measure("plain YAML", _is_yaml)
    corpus.measure("skills-ref validate", lambda folder: not _reference(folder))
    corpus.measure("butlers read", lambda folder: read_skill(folder).skill is not None)
    corpus.measure("butlers check", lambda folder: check(folder).valid)
    _install_all(corpus)
    return corpus.as_dict() | {"search": _search(root)}


def _is_yaml(folder: Path) -> bool:
    with suppress(OSError, ValueError, IndexError, yaml.YAMLError):
        text = (folder / "SKILL.md").read_text()
        front = yaml.load(text.split("---", 2)[1], Loader=yaml.CSafeLoader)
        return isinstance(front, dict) and bool(front.get("description"))
    return False


def _reference(folder: Path) -> Sequence[str]:
    try:
        return list(skills_ref.validate(folder))
    except Exception as error:  # noqa: BLE001  (the reference crashes on some files)
        return [repr(error)]


def _install_all(corpus: Corpus) -> None:
    installed = 0
    started = time.process_time()
    for first in range(0, len(corpus.folders), PER_HOME):
        with tempfile.TemporaryDirectory(prefix="butlers-corpus-") as home:
            installer = RegistryInstaller(SkillRegistry(Path(home)), "person")
            for folder in corpus.folders[first : first + PER_HOME]:
                installed += _installs(installer, folder, corpus)
    corpus.seconds["butlers install"] = time.process_time() - started
    corpus.counts["butlers install"] = installed


def _installs(installer: RegistryInstaller, folder: Path, corpus: Corpus) -> bool:
    try:
        installer.install(folder, lambda _offer: True)
    except InvalidSkill as error:
        for code in {found.code for found in error.diagnostics} or {error.code}:
            corpus.refused[code] += 1
    except SkillError as error:
        corpus.refused[error.code] += 1
    else:
        return True
    return False


def _search(root: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="butlers-corpus-") as home:
        index = SkillIndex(Path(home))
        started = time.perf_counter()
        index_folder(index, root)
        indexed = time.perf_counter() - started
        took = []
        for query in QUERIES * 5:
            started = time.perf_counter()
            index.search(query.split())
            took.append((time.perf_counter() - started) * 1000)
    return {"index_s": round(indexed, 2), "query_ms": round(median(took), 2)}


def _print(found: dict[str, Any]) -> None:
    total = found["skills"]
    print(f"{total:,} skills")
    print(f"{'':22} {'accepted':>10} {'share':>8} {'CPU s / 1,000':>14}")
    for name, count in found["accepted"].items():
        cpu = found["cpu_s_per_1000"][name]
        print(f"{name:22} {count:>10,} {count / max(1, total):>8.1%} {cpu:>14.2f}")
    for code, count in found["refused"].items():
        print(f"refused: {code:22} {count:>6,}")
    search = found["search"]
    print(f"search: index {search['index_s']:.1f} s, query {search['query_ms']:.2f} ms (median)")


def write_corpus(root: Path, count: int) -> None:
    """Write skills in the shapes of public ones; the same count always gives the same files."""
    order = random.Random(22)
    for number in range(count):
        topic = order.choice(TOPICS)
        _write(root / f"group-{number % 50}" / f"{topic}-{number}", topic, number, order)


def _write(folder: Path, topic: str, number: int, order: random.Random) -> None:
    """Write one skill; the shares are those that were counted in public collections."""
    (folder / "scripts").mkdir(parents=True)
    name, about = folder.name, f"Handles {topic} number {number}. Use when asked for {topic}."
    front = [f"name: {name}", f"description: {about}"]
    if order.random() < 0.05:
        front[0] = f"name: {topic.title()} Helper {number}"
    if order.random() < 0.41:
        front.append(f"version: {order.choice(['1.0.0', '1.0', '0.3', '2', 'v1.2.0'])}")
    if order.random() < 0.20:
        front.append('metadata: {"openclaw": {"requires": {"env": ["SERVICE_KEY"]}}}')
    if order.random() < 0.30:
        front.append("allowed-tools: Read, Write, Bash(git:*)")
    if order.random() < 0.30:
        front.append("author: somebody\ntags: [a, b]")
    if order.random() < 0.02:
        front[1] = f"description: {about} Note: it reads: {topic}: well"
    if order.random() < 0.01:
        front[1] = f"description: {about * 20}"
    text = "---\n" + "\n".join(front) + f"\n---\n{BODY}"
    if order.random() < 0.015:
        text = f"# {name}\n{BODY}"  # no front matter
    (folder / "SKILL.md").write_text(text)
    if order.random() < 0.25:
        script = "import os\n\nprint(os.environ.get('SERVICE_KEY'), os.environ.get('OTHER'))\n"
        (folder / "scripts" / "run.py").write_text(script)
    if order.random() < 0.01:
        (folder / "manifest.json").write_text('{"name": "a web app", "icons": []}')
    if order.random() < 0.003:
        (folder / "link").symlink_to("/etc/hostname")


if __name__ == "__main__":
    main()
