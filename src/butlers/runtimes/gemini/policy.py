"""What a session of the Gemini CLI may touch, as rules of its policy engine.

What no rule allows is denied, and a tool that is denied whatever it is given is not even offered. A rule that
the CLI does not accept is left out by it, which denies too.

Seen on 0.61.0: patterns are held to the letter, against chains, substitutions, redirections and other
arguments. Reading and listing stay inside the folders of the session, links followed. ``glob`` does not (a
pattern with ``..`` finds names outside), so it is not allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.runtimes import toml
from butlers.runtimes.base import Grants
from butlers.runtimes.commands import harmless

BUTLER, GRANTED, REST = 900, 800, 500
# The CLI shows a pattern the arguments as JSON, sorted, each between two of these. No value contains one.
MARK = r"\x00"


def policy(server: str, grants: Grants, cwd: Path, *, skills: bool = False) -> str:
    rules: list[dict[str, Any]] = [
        {"mcpName": server, "toolName": "*", "decision": "allow", "priority": BUTLER},
        *((_allow("activate_skill"),) if skills else ()),
        *(_granted(grants, cwd) if grants.access is Access.WORKSPACE else ()),
        {"toolName": "*", "decision": "deny", "priority": REST},
    ]
    return "".join(toml.tables("rule", rules))


def _granted(grants: Grants, cwd: Path) -> Iterator[dict[str, Any]]:
    if any(cwd.is_relative_to(folder) for folder in grants.readable):
        yield from (_allow(tool) for tool in ("read_file", "list_directory"))
    for file in grants.writable:
        for spelling in _spellings(file, cwd):
            target = f"{MARK}{_pair('file_path', spelling)}{MARK}"
            yield from (_allow(tool, target) for tool in ("write_file", "replace"))
    for command in harmless(grants, cwd):
        alone = f"{MARK}{_pair('command', command)}{MARK}"
        for more in ("", f',{MARK}"description":"[^{MARK}]*"{MARK}'):
            yield _allow("run_shell_command", rf"^\{{{alone}{more}\}}$")


def _allow(tool: str, pattern: str | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"toolName": tool, "decision": "allow", "priority": GRANTED}
    return {**rule, "argsPattern": pattern} if pattern else rule


def _pair(name: str, value: str) -> str:
    return f'"{name}":{re.escape(json.dumps(value, ensure_ascii=False))}'


def _spellings(file: Path, cwd: Path) -> list[str]:
    """Nothing for a link: what it leads to was not granted."""
    if file.is_symlink():
        return []
    inside = file.is_relative_to(cwd)
    return [str(file), *([str(file.relative_to(cwd))] if inside else [])]
