"""What a session of Claude Code may touch, as rules for the CLI and as a gate of our own behind them.

The CLI's rules alone do not hold the workspace level (seen on 2.1.325): it runs commands that it takes for
reading (``ls``, ``cat``, ``git status``) without any rule, and its paths match without regard to case, so
that a rule for AGENTS.md also lets a file agents.md be made. The gate is a hook that the CLI runs before
each use of a built-in tool, and that refuses all but what was granted to the letter. Both must agree.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.runtimes.base import Grants, Workspace
from butlers.runtimes.claude_code import gate
from butlers.runtimes.cli import write_private
from butlers.runtimes.commands import harmless

TOOLS = ("Bash", "Edit", "Read", "Write")
GATE_S = 20  # for what takes some milliseconds
PATIENCE_S = 600  # of the CLI with its hook; beyond it the call would be let through


@dataclass(frozen=True, slots=True)
class Permissions:
    butlers: tuple[str, ...]
    grants: Grants
    commands: tuple[str, ...]  # those granted that are safe to grant
    scripts: tuple[str, ...]  # of these, the ones that may have arguments
    gate: str | None  # the command line of the gate; None: nothing to guard

    @classmethod
    def of(cls, butlers: tuple[str, ...], workspace: Workspace, grants: Grants) -> Permissions:
        if grants.access is Access.SEALED:
            return cls(butlers, Grants(), (), (), None)
        commands = harmless(grants, workspace.cwd)
        scripts = tuple(one for one in commands if (workspace.cwd / one.split()[-1]).is_file())
        rules = {
            "readable": [str(path) for path in grants.readable],
            "writable": [str(path) for path in grants.writable],
            "commands": commands,
            "scripts": scripts,
        }
        file = write_private(workspace.private / "gate.json", json.dumps(rules))
        program = shlex.join((interpreter(), "-I", "-S", gate.__file__, str(file)))
        return cls(butlers, grants, commands, scripts, _shut_in_doubt(program))

    def settings(self) -> dict[str, Any]:
        hook = {"type": "command", "command": self.gate, "timeout": PATIENCE_S}
        gates = [{"matcher": "|".join(TOOLS), "hooks": [hook]}] if self.gate else []
        return {"permissions": {"allow": self.rules()}, "hooks": {"PreToolUse": gates}}

    def rules(self) -> list[str]:
        """Paths in rules begin with two slashes when they are absolute."""
        return [
            *(f"mcp__{butler}__*" for butler in self.butlers),
            *(
                f"Read(/{path}/**)"
                for folder in self.grants.readable
                for path in _spellings(folder)
            ),
            *(f"Edit(/{path})" for file in self.grants.writable for path in _spellings(file)),
            *(f"Bash({command})" for command in self.commands),
            *(f"Bash({command} *)" for command in self.scripts),
        ]


def _shut_in_doubt(program: str) -> str:
    """Any other failure than 2 would let the call through, and so would a gate that hangs for too long."""
    watch = f"(sleep {GATE_S}; kill -9 $gate) </dev/null >/dev/null 2>&1 & watch=$!"
    leave = "wait $gate; said=$?; kill $watch 2>/dev/null; [ $said -eq 0 ] || exit 2"
    begin = f"exec 3<&0; {program} <&3 & gate=$!"  # what runs beside a shell has no stdin by itself
    return f"{begin}; {watch}; {leave}"


def interpreter() -> str:
    return sys.executable


def _spellings(path: Path) -> set[Path]:
    """As it was granted, and with the links on the way to it followed."""
    return {path, path.parent.resolve() / path.name}
