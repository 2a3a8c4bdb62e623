"""The command line of Claude Code, the files that it names, and the permissions of a session.

The purpose of each flag and variable was observed on the real CLI; the contract suite checks it again.

The CLI's permission rules alone do not hold the workspace level (seen on 2.1.325): it runs commands that it
considers reading (``ls``, ``cat``, ``git status``) without any rule, and matches paths without regard to
case, so a rule for AGENTS.md also lets a session create agents.md. So there is also a gate: a hook that the
CLI runs before each use of a built-in tool, which refuses everything that was not granted literally.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import MCP_SERVERS, Grants, Invocation, McpServer, Terms, Workspace
from butlers.runtimes.claude_code import gate
from butlers.runtimes.cli import describe_servers, own_environment, safe_commands, write_private

TOOLS = ("Bash", "Edit", "Read", "Write")
GATE_S = 20  # for a gate that takes some milliseconds
HOOK_S = 600  # the CLI's limit for its hook, after which it would allow the call
# At every access level: no telemetry, no additions to the prompt, no long retries.
SWITCHES = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "ENABLE_TOOL_SEARCH": "false",  # otherwise the butler's tools hide behind a search
    "CLAUDE_CODE_MAX_RETRIES": "2",  # by default it retries for minutes, also with a wrong key
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # a line before the system prompt that changes each time
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",  # the butler's CLAUDE.md is already the system prompt
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # The CLI reads an @path in the prompt from the disk, whatever the permissions: a message from outside
    # could name any file.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}
CONFINED_SWITCHES = {
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
}
SKILL = "Skill"
SKILL_SETTINGS = {"disableSkillShellExecution": True}  # loading a skill's text could run commands
FULL_SWITCHES = {"IS_SANDBOX": "1"}  # otherwise it refuses to run without permissions as root


@dataclass(frozen=True, slots=True)
class Permissions:
    """Permissions of a session, as rules for the CLI and as a gate of our own behind them."""

    butlers: tuple[str, ...]
    grants: Grants
    commands: tuple[str, ...]  # granted commands that are safe
    scripts: tuple[str, ...]  # of these, the ones that may take arguments
    gate: str | None  # its command line; None: no built-in tools to guard

    @classmethod
    def of(cls, butlers: tuple[str, ...], workspace: Workspace, grants: Grants) -> Permissions:
        if grants.access is Access.SEALED:
            return cls(butlers, Grants(), (), (), None)
        commands = safe_commands(grants, workspace.cwd)
        scripts = tuple(one for one in commands if (workspace.cwd / one.split()[-1]).is_file())
        rules = {
            "readable": [str(path) for path in grants.readable],
            "writable": [str(path) for path in grants.writable],
            "commands": commands,
            "scripts": scripts,
        }
        file = write_private(workspace.private / "gate.json", json.dumps(rules))
        program = shlex.join((interpreter(), "-I", "-S", gate.__file__, str(file)))
        return cls(butlers, grants, commands, scripts, _fail_closed(program))

    def settings(self) -> dict[str, Any]:
        hook = {"type": "command", "command": self.gate, "timeout": HOOK_S}
        gates = [{"matcher": "|".join(TOOLS), "hooks": [hook]}] if self.gate else []
        return {"permissions": {"allow": self.rules()}, "hooks": {"PreToolUse": gates}}

    def rules(self) -> list[str]:
        """Return the CLI's rules. An absolute path in a rule begins with two slashes."""
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


def _fail_closed(program: str) -> str:
    """Wrap the gate so that it exits with 2 on any failure or delay: the CLI allows the call otherwise."""
    watch = f"(sleep {GATE_S}; kill -9 $gate) </dev/null >/dev/null 2>&1 & watch=$!"
    leave = "wait $gate; code=$?; kill $watch 2>/dev/null; [ $code -eq 0 ] || exit 2"
    begin = f"exec 3<&0; {program} <&3 & gate=$!"  # a background process of a shell has no stdin
    return f"{begin}; {watch}; {leave}"


def interpreter() -> str:
    return sys.executable


def _spellings(path: Path) -> set[Path]:
    """Return the path as it was granted, and with the links of its folder resolved."""
    return {path, path.parent.resolve() / path.name}


def compose(executable: Path, call: Invocation, butlers: Collection[str] = ()) -> ProcessCommand:
    """``butlers``: names of the servers whose tools it may call, if they are connected later."""
    terms = call.terms
    folder = terms.workspace.private
    full = terms.grants.access is Access.FULL
    argv = (
        *(str(executable), "-p", "--verbose"),
        *("--output-format", "stream-json"),
        "--no-session-persistence",
        *("--mcp-config", str(_mcp_file(folder, call.mcp_servers)), "--strict-mcp-config"),
        *("--system-prompt-file", str(write_private(folder / "system.md", call.system_prompt))),
        *("--setting-sources", "user" if terms.skills else ""),  # the scope of its skills
        *(_full() if full else _confined(butlers or call.mcp_servers, terms)),
        *(("--model", terms.model) if terms.model else ()),
        *terms.args,
    )
    switches = {
        **SWITCHES,
        **(FULL_SWITCHES if full else CONFINED_SWITCHES),
        **_shell(terms),
    }
    return ProcessCommand(
        argv,
        own_environment(call.env, terms, **switches),
        terms.workspace.cwd,
        plain(call.prompt).encode("utf-8", "replace"),
    )


def _shell(terms: Terms) -> dict[str, str]:
    """Return a file that the CLI reads before each command, to hide the session's token from it."""
    if terms.grants.access is Access.SEALED:
        return {}
    bare = write_private(terms.workspace.private / "bare.sh", f"unset {MCP_SERVERS}\n")
    return {"CLAUDE_ENV_FILE": str(bare)}


def _full() -> tuple[str, ...]:
    return ("--permission-mode", "bypassPermissions")


def _confined(butlers: Collection[str], terms: Terms) -> tuple[str, ...]:
    workspace = terms.grants.access is Access.WORKSPACE
    permissions = Permissions.of(tuple(butlers), terms.workspace, terms.grants)
    settings = permissions.settings()
    if terms.skills:
        # A skill may name tools for itself; the gate still refuses them.
        settings["permissions"]["allow"].append(SKILL)
        settings |= SKILL_SETTINGS
    file = write_private(terms.workspace.private / "settings.json", json.dumps(settings))
    tools = (*((SKILL,) if terms.skills else ()), *(TOOLS if workspace else ()))
    return (
        *("--permission-mode", "dontAsk"),
        *("--tools", ",".join(tools)),
        *(() if terms.skills else ("--disable-slash-commands",)),
        *("--settings", str(file)),
    )


def plain(prompt: str) -> str:
    """Put a line break before a slash: a prompt that begins with one is a command to the CLI."""
    return f"\n{prompt}" if prompt.startswith("/") else prompt


def _mcp_file(folder: Path, servers: Mapping[str, McpServer]) -> Path:
    """Write the servers to a file: every account could read a token on the command line."""
    return write_private(folder / "mcp.json", json.dumps(describe_servers(servers)))
