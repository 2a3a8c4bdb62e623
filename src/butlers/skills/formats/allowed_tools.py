"""The tools that a skill would like to use, as a list: `Bash(git add *) Read` is two."""

from __future__ import annotations

import re

# Separated by blanks or commas outside of parentheses; one that is never closed goes to the end.
_TOOL = re.compile(r"(?:[^\s,()]|\)|\((?:[^()]|\([^()]*\))*(?:\)|\Z|(?=\()))+")


def split_tools(written: str) -> tuple[str, ...]:
    return tuple(tool.rstrip() for tool in _TOOL.findall(written))


def is_standard(written: str, tools: tuple[str, ...]) -> bool:
    """Whether the tools stand there as the standard writes them: apart by single spaces."""
    return " ".join(tools) == written.strip()
