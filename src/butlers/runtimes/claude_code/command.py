"""The command line of Claude Code, and the files that it names.

What a flag or variable here is for was seen on the real CLI; the contract suite asks each of them again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import MCP_SERVERS, McpServer, Terms
from butlers.runtimes.claude_code.permissions import TOOLS, Permissions
from butlers.runtimes.cli import own_environment, write_private

# Whatever the access level: no call-outs, nothing in the prompt that we did not put there, no long waits.
SWITCHES = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "ENABLE_TOOL_SEARCH": "false",  # else the butler's tools hide behind a search
    "CLAUDE_CODE_MAX_RETRIES": "2",  # by default it goes on for minutes, also on a wrong key
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # a line before the system prompt that differs each time
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",  # the butler's CLAUDE.md is the system prompt already
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    # An @path anywhere in the prompt is read from the disk, without asking, whatever the permissions:
    # a message from outside could name any file.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
}
CONFINED_SWITCHES = {
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
}
SKILL = "Skill"
SKILL_SETTINGS = {
    "disableSkillShellExecution": True
}  # a skill's text could run commands as it is read
FULL_SWITCHES = {"IS_SANDBOX": "1"}  # else it refuses to run without permissions as root


def compose(
    executable: Path,
    prompt: str,
    system_prompt: str,
    mcp_servers: Mapping[str, McpServer],
    env: Mapping[str, str],
    terms: Terms,
    butlers: Collection[str] | None = None,
) -> ProcessCommand:
    """``butlers``: whose tools it may call, where its servers are told later."""
    folder = terms.workspace.private
    full = terms.grants.access is Access.FULL
    argv = (
        *(str(executable), "-p", "--verbose"),
        *("--output-format", "stream-json"),
        "--no-session-persistence",
        *("--mcp-config", str(_mcp_file(folder, mcp_servers)), "--strict-mcp-config"),
        *("--system-prompt-file", str(write_private(folder / "system.md", system_prompt))),
        *("--setting-sources", "user" if terms.skills else ""),  # where its skills are found
        *(_full() if full else _confined(butlers or mcp_servers, terms)),
        *(("--model", terms.model) if terms.model else ()),
        *terms.args,
    )
    switches = {**SWITCHES, **(FULL_SWITCHES if full else CONFINED_SWITCHES), **_shell(terms)}
    return ProcessCommand(
        argv,
        own_environment(env, terms, **switches),
        terms.workspace.cwd,
        plain(prompt).encode("utf-8", "replace"),
    )


def _shell(terms: Terms) -> dict[str, str]:
    """What it reads before each command that it runs, which would else have the session's token."""
    if terms.grants.access is Access.SEALED:
        return {}
    bare = write_private(terms.workspace.private / "bare.sh", f"unset {MCP_SERVERS}\n")
    return {"CLAUDE_ENV_FILE": str(bare)}


def _full() -> tuple[str, ...]:
    return ("--permission-mode", "bypassPermissions")


def _confined(butlers: Collection[str], terms: Terms) -> tuple[str, ...]:
    workspace = terms.grants.access is Access.WORKSPACE
    permissions = Permissions.of(tuple(butlers), terms.workspace, terms.grants)
    told = permissions.settings()
    if terms.skills:
        # One that names tools for itself is asked about; what it names is still refused by the gate.
        told["permissions"]["allow"].append(SKILL)
        told |= SKILL_SETTINGS
    settings = write_private(terms.workspace.private / "settings.json", json.dumps(told))
    tools = (*((SKILL,) if terms.skills else ()), *(TOOLS if workspace else ()))
    return (
        *("--permission-mode", "dontAsk"),
        *("--tools", ",".join(tools)),
        *(() if terms.skills else ("--disable-slash-commands",)),
        *("--settings", str(settings)),
    )


def described(servers: Mapping[str, McpServer]) -> dict[str, Any]:
    return {
        name: {
            "type": "http",
            "url": server.url,
            "headers": {"Authorization": f"Bearer {server.token}"},
        }
        for name, server in servers.items()
    }


def plain(prompt: str) -> str:
    """A text that begins with a slash is a command to the CLI; after a line break it is a text."""
    return f"\n{prompt}" if prompt.startswith("/") else prompt


def _mcp_file(folder: Path, servers: Mapping[str, McpServer]) -> Path:
    """A file of its own: on the command line every account could read the token."""
    return write_private(folder / "mcp.json", json.dumps({"mcpServers": described(servers)}))
