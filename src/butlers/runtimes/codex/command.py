"""The command line of a Codex session, and the files that it reads.

For a model of its catalog Codex hides MCP tools behind a search or behind JavaScript that the model has to
write, adds a patch tool and a team of agents, and uses its own dialect of the Responses API. A butler's
session needs none of that: the catalog that we write for it switches it off. A model that Codex does not
know gets plain tools anyway.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from butlers.domain.session import Access
from butlers.process.runner import ProcessCommand, ScriptLimits, TimeLimits, run_script
from butlers.runtimes.base import MCP_SERVERS, Invocation, McpServer, Terms
from butlers.runtimes.cli import own_environment, write_private
from butlers.runtimes.formats import toml_lines

CATALOG_S = 10.0  # for the program to print its catalog
MAX_CATALOG = 1 << 24  # bytes
PLAIN = {
    "supports_search_tool": False,
    "tool_mode": "direct",
    "use_responses_lite": False,
    "multi_agent_version": None,
    "experimental_supported_tools": [],
    # The session's own prompt takes their place, and they are most of the catalog's size.
    "base_instructions": "",
    "model_messages": None,
}
SEALED = {"apply_patch_tool_type": None}
OPENAI = "https://api.openai.com/v1"
PROVIDER = "butlers"
TOKEN = "BUTLERS_SESSION_TOKEN"
RETRIES = 2  # for a short failure; longer ones retry the whole session
# Switched off at every level: servers and code of others, other agents, and telemetry.
DISABLED = (
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
FULL_ONLY = ("shell_tool", "unified_exec", "view_image")


@dataclass(frozen=True, slots=True)
class Catalog:
    """Models of the CLI. Empty if it did not print them: then it uses its own catalog."""

    models: tuple[Mapping[str, Any], ...] = ()

    @property
    def default(self) -> str | None:
        """The model that Codex uses if none is named: the visible one of the first priority."""
        shown = [model for model in self.models if model.get("visibility") == "list"]
        if not shown:
            return None
        return str(min(shown, key=lambda model: model.get("priority", 0)).get("slug"))

    def as_json(self, *, sealed: bool) -> str:
        changes = {**PLAIN, **(SEALED if sealed else {})}
        return json.dumps({"models": [{**model, **changes} for model in self.models]})


async def bundled(executable: Path, timeout_s: float = CATALOG_S) -> Catalog:
    """Return the catalog that is part of the program; nothing is downloaded."""
    with tempfile.TemporaryDirectory(prefix="butlers-codex-") as home:
        argv = (str(executable), "debug", "models", "--bundled")
        command = ProcessCommand(argv, {"HOME": home, "CODEX_HOME": home}, Path(home))
        try:
            ended = await run_script(command, ScriptLimits(timeout_s, MAX_CATALOG))
            models = json.loads(ended.stdout)["models"] if ended.exit.code == 0 else ()
            return Catalog(tuple(model for model in models if type(model) is dict))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return Catalog()


def compose(executable: Path, call: Invocation, catalog: Catalog) -> ProcessCommand:
    terms = call.terms
    home = terms.workspace.home / ".codex"
    config = {
        **_settings(terms),
        **_provider(call.env, brokered=terms.brokered),
        **_butlers(call.mcp_servers, terms),
        **_prompt(call.system_prompt),
        **_models(home, catalog, terms),
    }
    write_private(home / "config.toml", "".join(toml_lines(config)))
    return ProcessCommand(
        argv=_argv(executable, terms),
        env=own_environment(
            call.env,
            terms,
            CODEX_HOME=str(home),
            # Calls of tools that it does not have are reported only in its log.
            RUST_LOG="error",
            **_token(call.mcp_servers),
        ),
        cwd=terms.workspace.cwd,
        stdin=call.prompt.encode("utf-8", "replace"),
    )


def compose_warm(executable: Path, call: Invocation, catalog: Catalog) -> ProcessCommand:
    """Return the command of a warm process: prompt and model are sent later."""
    command = compose(executable, call, catalog)
    argv = (str(executable), "app-server", *call.terms.args)
    # Its log has color codes even in a file, which would be read as part of a name.
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
        # Nothing may be added to the butler's system prompt.
        "project_doc_max_bytes": 0,
        "include_permissions_instructions": False,
        "include_environment_context": full,
        "analytics": {"enabled": False},
        "otel": {"exporter": "none"},
        "history": {"persistence": "none"},
        "skills": {"include_instructions": full, "bundled": {"enabled": False}},
        "tools": {"experimental_request_user_input": {"enabled": False}},
        "shell_environment_policy": {"exclude": [TOKEN, MCP_SERVERS]},
        # Without approvals it would trust the folder and load servers from it.
        "projects": {str(path): {"trust_level": "untrusted"} for path in _spellings(terms)},
        "features": {
            **dict.fromkeys(DISABLED, False),
            **dict.fromkeys(FULL_ONLY, full),
            "mcp_tool_list_changed": True,  # an opened skill adds tools
        },
    }


def _spellings(terms: Terms) -> set[Path]:
    """Return the working folder as it was named, and with links resolved."""
    return {terms.workspace.cwd, terms.workspace.cwd.resolve()}


def _provider(env: Mapping[str, str], *, brokered: bool) -> dict[str, Any]:
    """Define our own provider: the built-in one tries a WebSocket for seconds before it uses HTTP.

    The key broker repeats requests that fail, so the CLI repeats only streams that were cut.
    """
    provider = {
        "name": PROVIDER,
        "base_url": env.get("OPENAI_BASE_URL") or OPENAI,
        "env_key": "OPENAI_API_KEY",
        "wire_api": "responses",
        "supports_websockets": False,
        "request_max_retries": 0 if brokered else RETRIES,
        "stream_max_retries": RETRIES,
    }
    return {"model_provider": PROVIDER, "model_providers": {PROVIDER: provider}}


def _token(mcp_servers: Mapping[str, McpServer]) -> dict[str, str]:
    tokens = [server.token for server in mcp_servers.values()]
    return {TOKEN: tokens[0]} if tokens else {}


def _butlers(mcp_servers: Mapping[str, McpServer], terms: Terms) -> dict[str, Any]:
    """Return the butler's server; none for a process of the shared pool, whose thread names it."""
    servers = {
        name: {**_server(server, terms.limits.total_s), "bearer_token_env_var": TOKEN}
        for name, server in mcp_servers.items()
    }
    return {"mcp_servers": servers} if servers else {}


def server_config(name: str, server: McpServer, limits: TimeLimits) -> dict[str, Any]:
    """Return the server for a thread of a warm process, whose environment does not hold the token."""
    headers = {"Authorization": f"Bearer {server.token}"}
    return {f"mcp_servers.{name}": {**_server(server, limits.total_s), "http_headers": headers}}


def _server(server: McpServer, total_s: float) -> dict[str, Any]:
    return {
        "url": server.url,
        "required": True,  # otherwise a server that is down is not an error
        "default_tools_approval_mode": "approve",
        "tool_timeout_sec": total_s,
    }


def _prompt(system_prompt: str) -> dict[str, Any]:
    """Put the prompt into the configuration: Codex would strip the ends of an instructions file."""
    return {"instructions": system_prompt} if system_prompt.strip() else {}


def _models(home: Path, catalog: Catalog, terms: Terms) -> dict[str, Any]:
    if not catalog.models:
        return {}
    path = write_private(home / "models.json", catalog.as_json(sealed=not _full(terms)))
    return {"model_catalog_json": str(path)}
