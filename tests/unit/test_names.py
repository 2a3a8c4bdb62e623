"""Names and docstrings follow the rules of CONTRIBUTING."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = "_script.py"  # copied into each built-in skill, which may import nothing else
CLAUSES = ("How ", "If ", "That ", "What ", "When ", "Where ", "Whether ", "Which ", "Who ", "Why ")


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("src", "roster"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if file.name != SHARED:
                yield file.relative_to(ROOT), ast.parse(file.read_text(encoding="utf-8"))


def test_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(file))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_docstrings_open_with_a_verb_or_a_noun_phrase() -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    clauses = [
        f"{file}: {text.splitlines()[0]}"
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, documented)
        and (text := ast.get_docstring(node))
        and text.startswith(CLAUSES)
    ]
    assert clauses == []
