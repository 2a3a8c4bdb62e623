"""A script's own words about what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from butlers.skills.described import LONGEST, describe_script


@pytest.mark.parametrize(
    ("name", "text", "said"),
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
        ("a.sh", f"# {'x' * 999}\n", "x" * LONGEST),
    ],
)
def test_the_first_words_of_its_comment_or_docstring(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    assert describe_script(tmp_path / name) == said


def test_bytes_of_a_stranger_and_no_file_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe\0" * 20_000)
    assert describe_script(tmp_path / "a.py") == ""
    assert describe_script(tmp_path / "gone.py") == ""
