"""The page of incidents names tests; each of them is there, under the sentence that the page gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`([\w/]+\.py)`(?:: ([^·|\n]+))?", (ROOT / "docs" / "incidents.md").read_text())


@pytest.mark.parametrize(("path", "sentence"), NAMED)
def test_the_page_names_a_test_that_is_there(path: str, sentence: str) -> None:
    text = (ROOT / path).read_text()
    name = "_".join(re.sub(r"[^\w ]", "", sentence).split())
    assert f"def test_{name}" in text.lower()
