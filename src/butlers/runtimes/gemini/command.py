"""The command line of a Gemini session, the files that it reads, and the policy that limits its tools.

Tools that no rule of the policy allows are denied, and a tool that is always denied is not offered. The CLI
ignores a rule that it does not accept, which also denies.

Seen on 0.61.0: patterns hold literally, against chains, substitutions, redirections and other arguments.
Reading and listing stay inside the folders of the session, links followed. ``glob`` does not (a pattern with
``..`` finds names outside), so it is not allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import Grants, Invocation, McpServer, Terms
from butlers.runtimes.cli import own_environment, safe_commands, write_private
from butlers.runtimes.formats import toml_tables
from butlers.runtimes.gemini.preload import Preload

BUTLER, GRANTED, REST = 900, 800, 500
# A pattern sees the arguments as JSON, sorted, each between two of these. No value contains one.
MARK = r"\x00"
MODEL = "gemini-2.5-flash"  # without a name, the CLI asks a model which one to use
SKILLS_LISTED = "${AgentSkills}"  # the CLI replaces it by a list of its skills
ATTEMPTS = 2  # its default is ten, over minutes
SETTINGS_FOLDER = ".gemini"  # the CLI obeys the one in its working folder


def policy(server: str, grants: Grants, cwd: Path, *, skills: bool = False) -> str:
    rules: list[dict[str, Any]] = [
        {"mcpName": server, "toolName": "*", "decision": "allow", "priority": BUTLER},
        *((_allow("activate_skill"),) if skills else ()),
        *(_granted(grants, cwd) if grants.access is Access.WORKSPACE else ()),
        {"toolName": "*", "decision": "deny", "priority": REST},
    ]
    return "".join(toml_tables("rule", rules))


def _granted(grants: Grants, cwd: Path) -> Iterator[dict[str, Any]]:
    if any(cwd.is_relative_to(folder) for folder in grants.readable):
        yield from (_allow(tool) for tool in ("read_file", "list_directory"))
    for file in grants.writable:
        for spelling in _spellings(file, cwd):
            target = f"{MARK}{_pair('file_path', spelling)}{MARK}"
            yield from (_allow(tool, target) for tool in ("write_file", "replace"))
    for command in safe_commands(grants, cwd):
        alone = f"{MARK}{_pair('command', command)}{MARK}"
        for more in ("", f',{MARK}"description":"[^{MARK}]*"{MARK}'):
            yield _allow("run_shell_command", rf"^\{{{alone}{more}\}}$")


def _allow(tool: str, pattern: str | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"toolName": tool, "decision": "allow", "priority": GRANTED}
    return {**rule, "argsPattern": pattern} if pattern else rule


def _pair(name: str, value: str) -> str:
    return f'"{name}":{re.escape(json.dumps(value, ensure_ascii=False))}'


def _spellings(file: Path, cwd: Path) -> list[str]:
    """Return the names of a granted file; none for a link, because its target was not granted."""
    if file.is_symlink():
        return []
    inside = file.is_relative_to(cwd)
    return [str(file), *([str(file.relative_to(cwd))] if inside else [])]


def compose(executable: Path, call: Invocation) -> ProcessCommand:
    terms = call.terms
    ((name, server),) = call.mcp_servers.items()
    home = terms.workspace.home / ".gemini"
    settings = _settings(alias(name), server, terms)
    write_private(home / "settings.json", json.dumps(settings, indent=1))
    preload = Preload.write(home, call.system_prompt, call.env)
    listing = f"\n\n{SKILLS_LISTED}" if terms.skills else ""
    system = write_private(home / "system.md", f"{preload.mark}{listing}")
    return ProcessCommand(
        argv=(
            str(executable),
            "-m",
            terms.model or MODEL,
            "-o",
            "stream-json",
            "--allowed-mcp-server-names",
            alias(name),
            *_access(home, alias(name), terms),
            *terms.args,
        ),
        env=own_environment(
            call.env,
            terms,
            GEMINI_SYSTEM_MD=str(system),
            GEMINI_CLI_NO_RELAUNCH="true",  # a second process would outlive it
            GEMINI_TELEMETRY_ENABLED="false",
            NODE_OPTIONS=preload.options,
        ),
        cwd=_cwd(terms),
        # A prompt that begins with a slash would be a command to the CLI.
        stdin=f"\n{call.prompt}".encode("utf-8", "replace"),
    )


def alias(name: str) -> str:
    """Replace underscores: in a policy, the name of a server ends at the first one."""
    return name.replace("_", "-")


def _access(home: Path, server: str, terms: Terms) -> tuple[str, ...]:
    if terms.grants.access is Access.FULL:
        return ("--approval-mode", "yolo", *_include(terms, (terms.workspace.cwd,)))
    rules = policy(server, terms.grants, terms.workspace.cwd, skills=terms.skills)
    readable = terms.grants.readable if terms.grants.access is Access.WORKSPACE else ()
    return ("--policy", str(write_private(home / "butler.toml", rules)), *_include(terms, readable))


def _include(terms: Terms, folders: tuple[Path, ...]) -> tuple[str, ...]:
    """Return arguments for the folders that are outside the working folder."""
    here = _cwd(terms)
    outside = [str(folder) for folder in folders if not folder.is_relative_to(here)]
    return tuple(part for folder in outside for part in ("--include-directories", folder))


def _cwd(terms: Terms) -> Path:
    """Return the working folder of the CLI.

    It is empty for a sealed session, because the CLI adds a file that the prompt names as ``@file``, whatever
    the policy says. It is also empty if the butler's folder has settings for the CLI: their hooks would
    precede ours.
    """
    cwd = terms.workspace.cwd
    if terms.grants.access is not Access.SEALED and not has_settings(cwd):
        return cwd
    empty = terms.workspace.private / "empty"
    empty.mkdir(mode=0o700, exist_ok=True)
    return empty


def has_settings(directory: Path) -> bool:
    return (directory / SETTINGS_FOLDER).exists()


def _settings(name: str, server: McpServer, terms: Terms) -> dict[str, Any]:
    return {
        "mcpServers": {
            name: {
                "httpUrl": server.url,
                "headers": {"Authorization": f"Bearer {server.token}"},
                "timeout": int(terms.limits.total_s * 1000),
                "oauth": {"enabled": False},
            }
        },
        "mcp": {"allowed": [name]},
        "security": {
            "auth": {"selectedType": "gemini-api-key"},
            # In a folder that is not trusted, no server is used, not even ours.
            "folderTrust": {"enabled": False},
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "maxAttempts": 1 if terms.brokered else ATTEMPTS,
            "sessionRetention": {"enabled": False},
        },
        "advanced": {"ignoreLocalEnv": True},
        "context": {"includeDirectoryTree": False},
        "experimental": {"enableAgents": False},
        "hooksConfig": {"enabled": False},
        "skills": {"enabled": terms.skills or terms.grants.access is Access.FULL},
        "tools": {"useRipgrep": False},
        "ui": {"showCompatibilityWarnings": False},
    }
