"""The gate: a hook that the CLI runs before each use of a built-in tool, to refuse what was not granted.

This file is run as a program (see ``command.Permissions``), with the standard library alone. It reads the
use from stdin and writes a refusal to stdout. Without output the CLI's own rules decide.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

# Arguments of a script: words without meaning for the shell that cannot name another folder.
WORD = r"(?:[\w@%+=:,.-]+|'[^'/\\\x00-\x1f\x7f]*')"
ARGUMENTS = re.compile(rf"(?: {WORD})+")

Rules = dict[str, list[str]]


def refusal(tool: str, given: dict[str, Any], cwd: Path, rules: Rules) -> str | None:
    """Return why this use is refused; None if it was granted."""
    if tool == "Bash":
        granted = _may_run(given, rules)
        return None if granted else f"Only these commands may be run: {rules['commands']}"
    path = cwd / str(given.get("file_path", ""))
    if tool == "Read":
        granted = _may_read(path, rules)
        return None if granted else f"Only files in these folders may be read: {rules['readable']}"
    if tool in ("Edit", "Write"):
        granted = _may_write(path, rules)
        return None if granted else f"Only these files may be written: {rules['writable']}"
    return f"{tool} may not be used"


def _may_run(given: dict[str, Any], rules: Rules) -> bool:
    command = given.get("command")
    if not isinstance(command, str) or given.get("run_in_background"):
        return False
    return command in rules["commands"] or any(
        command.startswith(script) and _plain(command[len(script) :]) for script in rules["scripts"]
    )


def _plain(arguments: str) -> bool:
    return ARGUMENTS.fullmatch(arguments) is not None and ".." not in arguments


def _may_read(path: Path, rules: Rules) -> bool:
    return any(
        path.resolve().is_relative_to(Path(folder).resolve()) for folder in rules["readable"]
    )


def _may_write(path: Path, rules: Rules) -> bool:
    """Accept only the granted file, not another spelling of its name or a link in its place."""
    return any(
        path.resolve() == file.parent.resolve() / file.name for file in map(Path, rules["writable"])
    )


def main() -> None:
    rules: Rules = json.loads(Path(sys.argv[1]).read_text())
    use = json.load(sys.stdin)
    reason = refusal(use["tool_name"], use["tool_input"], Path(use["cwd"]), rules)
    if reason is not None:
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
        output = {**decision, "permissionDecisionReason": reason}
        sys.stdout.write(json.dumps({"hookSpecificOutput": output}))


if __name__ == "__main__":
    main()
