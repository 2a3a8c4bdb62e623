"""Tests that ``docs/security.md`` names exist, and attacks are named where they are performed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)`(?:: `(test_\w+)`)?", PAGE)
NEW = (
    "script_sandbox",
    "session_containment",
    "server_identity",
    "database_limits",
    "daemon_memory",
    "tokens_and_ports",
    "secrets_said",
    "supply_chain",
)


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 40
    assert "test_" not in re.sub(r"`tests/[\w/]+\.py`(: `test_\w+`)?", "", PAGE)


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_named_test_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text()
    assert re.search(rf"def {name}\(", text) if name else "def test_" in text


@pytest.mark.parametrize("boundary", NEW)
def test_attacks_are_named_in_the_docstring(boundary: str) -> None:
    tree = ast.parse((ROOT / "tests" / "security" / f"test_{boundary}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            assert (ast.get_docstring(node) or "").startswith(("Attack: ", "Not an attack: ")), (
                node.name
            )
