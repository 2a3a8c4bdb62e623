"""The command line of a Codex session, and the files that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand, TimeLimits
from butlers.runtimes import toml
from butlers.runtimes.base import MCP_SERVERS, McpServer, Terms
from butlers.runtimes.cli import own_environment, write_private
from butlers.runtimes.codex.catalog import Catalog

OPENAI = "https://api.openai.com/v1"
PROVIDER = "butlers"
TOKEN = "BUTLERS_SESSION_TOKEN"
RETRIES = 2  # the session is tried again as a whole; here only a hiccup is bridged

# What is switched off at every level: other people's servers and code, other agents, and what calls home.
NEVER = (
    "apps",
    "goals",
    "hooks",
    "image_generation",
    "multi_agent",
    "plugins",
    "shell_snapshot",
    "sleep_tool",
    "tool_suggest",
)
HANDS = ("shell_tool", "unified_exec", "view_image")


def compose(
    executable: Path,
    prompt: str,
    system_prompt: str,
    mcp_servers: Mapping[str, McpServer],
    env: Mapping[str, str],
    terms: Terms,
    catalog: Catalog,
) -> ProcessCommand:
    home = terms.workspace.home / ".codex"
    config = {
        **_settings(terms),
        **_provider(env),
        **_butlers(mcp_servers, terms),
        **_prompt(system_prompt),
        **_models(home, catalog, terms),
    }
    write_private(home / "config.toml", "".join(toml.lines(config)))
    return ProcessCommand(
        argv=_argv(executable, terms),
        env=own_environment(
            env,
            terms,
            CODEX_HOME=str(home),
            # Calls of tools that it has not are told nowhere but in its log.
            RUST_LOG="error",
            **_token(mcp_servers),
        ),
        cwd=terms.workspace.cwd,
        stdin=prompt.encode("utf-8", "replace"),
    )


def compose_waiting(
    executable: Path,
    mcp_servers: Mapping[str, McpServer],
    env: Mapping[str, str],
    terms: Terms,
    catalog: Catalog,
) -> ProcessCommand:
    """The same files and environment for a process that is spoken to: prompt and model come later."""
    command = compose(executable, "", "", mcp_servers, env, terms, catalog)
    argv = (str(executable), "app-server", *terms.args)
    # Its log is coloured even where nobody looks, which would be read as part of a name.
    return replace(command, argv=argv, env={**command.env, "NO_COLOR": "1"})


def _argv(executable: Path, terms: Terms) -> tuple[str, ...]:
    return (
        str(executable),
        "exec",
        "--json",
        "--ephemeral",
        "--skip-git-repo-check",
        *(("-m", terms.model) if terms.model else ()),
        *(("--dangerously-bypass-approvals-and-sandbox",) if _full(terms) else ()),
        *terms.args,
        "-",
    )


def _full(terms: Terms) -> bool:
    return terms.grants.access is Access.FULL


def _settings(terms: Terms) -> dict[str, Any]:
    full = _full(terms)
    return {
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access" if full else "read-only",
        "web_search": "disabled",
        "check_for_update_on_startup": False,
        "suppress_unstable_features_warning": True,
        # The system prompt is the butler's; nothing is to be added to it.
        "project_doc_max_bytes": 0,
        "include_permissions_instructions": False,
        "include_environment_context": full,
        "analytics": {"enabled": False},
        "otel": {"exporter": "none"},
        "history": {"persistence": "none"},
        "skills": {"include_instructions": full, "bundled": {"enabled": False}},
        "tools": {"experimental_request_user_input": {"enabled": False}},
        "shell_environment_policy": {"exclude": [TOKEN, MCP_SERVERS]},
        # Without approvals to give it would trust the folder, and take servers from it.
        "projects": {str(path): {"trust_level": "untrusted"} for path in _spellings(terms)},
        "features": {
            **dict.fromkeys(NEVER, False),
            **dict.fromkeys(HANDS, full),
            "mcp_tool_list_changed": True,  # a skill that is opened brings tools with it
        },
    }


def _spellings(terms: Terms) -> set[Path]:
    """Where it stands: as it was named, and where the links on the way lead."""
    return {terms.workspace.cwd, terms.workspace.cwd.resolve()}


def _provider(env: Mapping[str, str]) -> dict[str, Any]:
    """Always one of our own: the built-in one tries a WebSocket for seconds before it speaks HTTP."""
    provider = {
        "name": PROVIDER,
        "base_url": env.get("OPENAI_BASE_URL") or OPENAI,
        "env_key": "OPENAI_API_KEY",
        "wire_api": "responses",
        "supports_websockets": False,
        "request_max_retries": RETRIES,
        "stream_max_retries": RETRIES,
    }
    return {"model_provider": PROVIDER, "model_providers": {PROVIDER: provider}}


def _token(mcp_servers: Mapping[str, McpServer]) -> dict[str, str]:
    tokens = [server.token for server in mcp_servers.values()]
    return {TOKEN: tokens[0]} if tokens else {}


def _butlers(mcp_servers: Mapping[str, McpServer], terms: Terms) -> dict[str, Any]:
    """None where it waits for any: it is told with its thread."""
    servers = {
        name: {**_server(server, terms.limits.total_s), "bearer_token_env_var": TOKEN}
        for name, server in mcp_servers.items()
    }
    return {"mcp_servers": servers} if servers else {}


def server_config(name: str, server: McpServer, limits: TimeLimits) -> dict[str, Any]:
    """The same for a process that is booted already: its environment can not hold the token any more."""
    headers = {"Authorization": f"Bearer {server.token}"}
    return {f"mcp_servers.{name}": {**_server(server, limits.total_s), "http_headers": headers}}


def _server(server: McpServer, total_s: float) -> dict[str, Any]:
    return {
        "url": server.url,
        "required": True,  # without it a server that is down is no failure
        "default_tools_approval_mode": "approve",
        "tool_timeout_sec": total_s,
    }


def _prompt(system_prompt: str) -> dict[str, Any]:
    """In its configuration: of a file of instructions it would cut off what is blank at both ends."""
    return {"instructions": system_prompt} if system_prompt.strip() else {}


def _models(home: Path, catalog: Catalog, terms: Terms) -> dict[str, Any]:
    if not catalog.models:
        return {}
    path = write_private(home / "models.json", catalog.as_json(sealed=not _full(terms)))
    return {"model_catalog_json": str(path)}
