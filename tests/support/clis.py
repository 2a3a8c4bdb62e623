"""The CLIs that the contract is asked of: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.cli import CliRuntime
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.gemini import GeminiAdapter
from support.fake_model import Call


@dataclass(frozen=True)
class Cli:
    name: str
    program: str  # in the set of npm programs
    adapter: Callable[[Path], CliRuntime]
    model: str
    environment: Callable[[str], Mapping[str, str]]  # what points it to a model at that URL
    plant: Mapping[str, str]  # for its cwd and its home: a server at @URL, a hook that makes @MARK
    run: Callable[[str], Call]  # its own tool that runs a command
    read: Callable[[Path], Call]  # and the one that reads a file
    no_key: str  # the variable without which it has no credential
    prefix: str  # of the butler's tools, as the model is offered them
    beside: frozenset[str] = frozenset()  # tools that it offers whatever is switched off


def claude_environment(url: str) -> Mapping[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "key-of-the-session"}


CLAUDE_SERVER = '{"mcpServers": {"foreign": {"type": "http", "url": "@URL"}}}'
CLAUDE_HOOK = '{"SessionStart": [{"hooks": [{"type": "command", "command": "touch @MARK"}]}]}'
CLAUDE_PLANT = {
    ".mcp.json": CLAUDE_SERVER,
    ".claude.json": CLAUDE_SERVER,
    ".claude/settings.json": f'{{"enableAllProjectMcpServers": true, "hooks": {CLAUDE_HOOK}}}',
    ".claude/settings.local.json": f'{{"hooks": {CLAUDE_HOOK}}}',
}

CLAUDE = Cli(
    "claude-code",
    "claude",
    ClaudeCodeAdapter,
    "claude-sonnet-4-5",
    claude_environment,
    CLAUDE_PLANT,
    run=lambda command: Call("Bash", {"command": command}),
    read=lambda file: Call("Read", {"file_path": str(file)}),
    no_key="ANTHROPIC_API_KEY",
    prefix="mcp__tester__",
)


START_HOOK = """{
    "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch @MARK"}]}]}
}"""


def codex_environment(url: str) -> Mapping[str, str]:
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "key-of-the-session"}


CODEX_PLANT = {
    ".codex/config.toml": '[features]\nhooks = true\n[mcp_servers.foreign]\nurl = "@URL"\n',
    ".codex/hooks.json": START_HOOK,
}

CODEX = Cli(
    "codex",
    "codex",
    CodexAdapter,
    "gpt-5.5",  # one that it knows, and would hide tools from
    codex_environment,
    CODEX_PLANT,
    run=lambda command: Call("exec_command", {"cmd": command}),
    read=lambda file: Call("exec_command", {"cmd": f"cat {file}"}),
    no_key="OPENAI_API_KEY",
    prefix="mcp__tester::",
    # All three speak with the butler's server alone.
    beside=frozenset({"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"}),
)


def gemini_environment(url: str) -> Mapping[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "key-of-the-session"}


# It even says that the foreign server is the one that is allowed.
GEMINI_PLANT = {
    ".gemini/settings.json": """{
        "mcpServers": {"foreign": {"httpUrl": "@URL", "trust": true}},
        "mcp": {"allowed": ["foreign", "tester"]},
        "hooksConfig": {"enabled": true},
        "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch @MARK"}]}]}
    }""",
    ".env": "GEMINI_MODEL=foreign",
}

GEMINI = Cli(
    "gemini",
    "gemini",
    GeminiAdapter,
    "gemini-2.5-flash",
    gemini_environment,
    GEMINI_PLANT,
    run=lambda command: Call("run_shell_command", {"command": command}),
    read=lambda file: Call("read_file", {"file_path": str(file)}),
    no_key="GEMINI_API_KEY",
    prefix="mcp_tester_",
)

CLIS = (CLAUDE, CODEX, GEMINI)
