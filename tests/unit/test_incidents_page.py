"""Tests that ``docs/incidents.md`` names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "incidents.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)`(?:: `(test_\w+)`)?", PAGE)


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 60
    assert "test_" not in re.sub(r"`tests/[\w/]+\.py`(: `test_\w+`)?", "", PAGE)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_named_test_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text()
    assert re.search(rf"def {name}\(", text) if name else "def test_" in text
