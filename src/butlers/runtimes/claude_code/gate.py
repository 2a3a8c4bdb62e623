"""The gate: asked by the CLI before each use of a built-in tool, it refuses what was not granted.

This file is run as a program (a hook, see ``permissions``), with the standard library alone: the use comes
by stdin, a refusal goes to stdout. Silence leaves the matter to the CLI's own rules.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

# Arguments of a script: words without any meaning for the shell, and none that could name another place.
WORD = r"(?:[\w@%+=:,.-]+|'[^'/\\\x00-\x1f\x7f]*')"
ARGUMENTS = re.compile(rf"(?: {WORD})+")

Rules = dict[str, list[str]]


def refusal(tool: str, given: dict[str, Any], cwd: Path, rules: Rules) -> str | None:
    """Why this use is refused; None when it was granted."""
    if tool == "Bash":
        granted = _may_run(given, rules)
        return None if granted else f"Only these commands may be run: {rules['commands']}"
    path = cwd / str(given.get("file_path", ""))
    if tool == "Read":
        granted = _may_read(path, rules)
        return (
            None if granted else f"Only what lies in these folders may be read: {rules['readable']}"
        )
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
    """The very file: neither under another spelling nor through a link that is the file itself."""
    return any(
        path.resolve() == file.parent.resolve() / file.name for file in map(Path, rules["writable"])
    )


def main() -> None:
    rules: Rules = json.loads(Path(sys.argv[1]).read_text())
    asked = json.load(sys.stdin)
    reason = refusal(asked["tool_name"], asked["tool_input"], Path(asked["cwd"]), rules)
    if reason is not None:
        decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
        output = {**decision, "permissionDecisionReason": reason}
        sys.stdout.write(json.dumps({"hookSpecificOutput": output}))


if __name__ == "__main__":
    main()
