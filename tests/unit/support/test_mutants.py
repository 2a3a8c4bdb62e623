"""The mutations of ``make mutants`` still fit the code, and their tests exist."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_mutants", ROOT / "scripts/run_mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MUTANTS = _runner().load_mutants()


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len(MUTANTS) >= 60
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_mutation_fits_the_code_and_names_a_test(mutant: object) -> None:
    text = (ROOT / mutant.file).read_text()  # type: ignore[attr-defined]
    assert text.count(mutant.old) == 1  # type: ignore[attr-defined]
    ast.parse(text.replace(mutant.old, mutant.new))  # type: ignore[attr-defined]
    file, _, name = mutant.test.partition("::")  # type: ignore[attr-defined]
    assert f"def {name}(" in (ROOT / file).read_text()
