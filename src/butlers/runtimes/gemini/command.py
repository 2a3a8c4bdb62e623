"""The command line of a Gemini session, and the files that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand
from butlers.runtimes.base import McpServer, Terms
from butlers.runtimes.cli import own_environment, write_private
from butlers.runtimes.gemini.policy import policy
from butlers.runtimes.gemini.preload import Preload

MODEL = "gemini-2.5-flash"  # unnamed, the CLI asks a model which one to take
SKILLS_LISTED = "${AgentSkills}"  # in place of it the CLI lists the skills that it found
ATTEMPTS = 2  # its own patience is ten, over minutes

ITS_OWN = ".gemini"  # settings that it reads where it stands, and obeys


def compose(
    executable: Path,
    prompt: str,
    system_prompt: str,
    mcp_servers: Mapping[str, McpServer],
    env: Mapping[str, str],
    terms: Terms,
) -> ProcessCommand:
    ((name, server),) = mcp_servers.items()
    home = terms.workspace.home / ".gemini"
    settings = _settings(alias(name), server, terms)
    write_private(home / "settings.json", json.dumps(settings, indent=1))
    preload = Preload.write(home, system_prompt, env)
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
            env,
            terms,
            GEMINI_SYSTEM_MD=str(system),
            GEMINI_CLI_NO_RELAUNCH="true",  # its second process would outlive it
            GEMINI_TELEMETRY_ENABLED="false",
            NODE_OPTIONS=preload.options,
        ),
        cwd=_cwd(terms),
        # A prompt that begins with a slash would be a command to the CLI itself.
        stdin=f"\n{prompt}".encode("utf-8", "replace"),
    )


def alias(name: str) -> str:
    """Its policies take the name of a server to end at the first underscore."""
    return name.replace("_", "-")


def _access(home: Path, server: str, terms: Terms) -> tuple[str, ...]:
    if terms.grants.access is Access.FULL:
        return ("--approval-mode", "yolo", *_beside(terms, (terms.workspace.cwd,)))
    rules = policy(server, terms.grants, terms.workspace.cwd, skills=terms.skills)
    readable = terms.grants.readable if terms.grants.access is Access.WORKSPACE else ()
    return ("--policy", str(write_private(home / "butler.toml", rules)), *_beside(terms, readable))


def _beside(terms: Terms, folders: tuple[Path, ...]) -> tuple[str, ...]:
    """Those of the folders that it does not see from where it stands."""
    here = _cwd(terms)
    beside = [str(folder) for folder in folders if not folder.is_relative_to(here)]
    return tuple(part for folder in beside for part in ("--include-directories", folder))


def _cwd(terms: Terms) -> Path:
    """Where it stands. A sealed session stands in an empty folder: whatever its policy says, the CLI puts a
    file into the prompt that names it as ``@file``. So does any session whose butler's folder has settings
    for the CLI itself: it would run their hooks, above our own."""
    cwd = terms.workspace.cwd
    if terms.grants.access is not Access.SEALED and not has_settings(cwd):
        return cwd
    empty = terms.workspace.private / "empty"
    empty.mkdir(mode=0o700, exist_ok=True)
    return empty


def has_settings(directory: Path) -> bool:
    return (directory / ITS_OWN).exists()


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
            # A folder that is not trusted has no servers, not even these.
            "folderTrust": {"enabled": False},
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "maxAttempts": ATTEMPTS,
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
