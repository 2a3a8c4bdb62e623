"""Descriptions of scripts, from their docstrings and comments."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.skills.instructions import MAX_DESCRIPTION, describe_script


@pytest.mark.parametrize(
    ("name", "text", "described"),
    [
        ("a.py", '"""Post a tweet.\n\nMore."""\n', "Post a tweet."),
        ("a.py", "#!/usr/bin/env python3\n'''Post it.'''\n", "Post it."),
        ("a.py", "import os\n", ""),
        ("a.py", "def broken(:\n", ""),
        (
            "a.sh",
            "#!/bin/bash\n# scripts/a.sh\n\n# Simple health check\ncurl x\n",
            "Simple health check",
        ),
        ("a.sh", "echo hello\n", ""),
        ("a.ts", "// scripts/post-twitter.ts\n\nimport x from 'y';\n", ""),
        ("a.ts", "// Post a tweet\n", "Post a tweet"),
        ("a.js", "/**\n * Read a file.\n */\n", "Read a file."),
        ("a.js", "/* x */\n/** @description Read it all */\n", "Read it all"),
        ("a.sh", "# \x1b[31mred\n", "[31mred"),
        ("a.sh", f"# {'x' * 999}\n", "x" * MAX_DESCRIPTION),
    ],
)
def test_description_is_the_first_line_of_the_docstring_or_comment(
    tmp_path: Path, name: str, text: str, described: str
) -> None:
    (tmp_path / name).write_text(text)
    assert describe_script(tmp_path / name) == described


def test_binary_or_missing_file_has_no_description(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe\0" * 20_000)
    assert describe_script(tmp_path / "a.py") == ""
    assert describe_script(tmp_path / "gone.py") == ""
