"""Chooses what a butler thinks with: the CLI that its configuration names, or the first that could."""

from __future__ import annotations

from pathlib import Path

from butlers.config.butler import ButlerConfig
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.runtimes.base import Runtime
from butlers.runtimes.claude_code import ClaudeCodeAdapter
from butlers.runtimes.cli import CliRuntime
from butlers.runtimes.codex import CodexAdapter
from butlers.runtimes.gemini import GeminiAdapter
from butlers.runtimes.installed import find_cli, install_hint
from butlers.runtimes.needs import NEEDS
from butlers.secrets.credentials import CredentialMissing, CredentialStore

ADAPTERS: dict[str, type[CliRuntime]] = {
    "claude-code": ClaudeCodeAdapter,
    "codex": CodexAdapter,
    "gemini": GeminiAdapter,
}


async def require_credential(runtime: str, credentials: CredentialStore) -> None:
    """Raise when the runtime that is asked for by name has none of the credentials it could use."""
    if runtime in NEEDS and not await has_credential(runtime, credentials):
        first, *others = NEEDS[runtime].credentials
        also = f" (or {', '.join(others)})" if others else ""
        raise CredentialMissing(
            f"the runtime {runtime} needs the credential {first}{also}, which is not set",
            hint=f"`butlers secrets set {first}`, or set the environment variable {first}",
        )


async def has_credential(runtime: str, credentials: CredentialStore) -> bool:
    for name in NEEDS[runtime].credentials:
        if await credentials.resolve(name, env=name):
            return True
    return False


async def choose_runtime(
    config: ButlerConfig, settings: Settings, credentials: CredentialStore
) -> Runtime | None:
    """None: nothing but reflexes. ``auto`` takes the first CLI that is here and has a credential."""
    wanted, search_path = config.runtime.type, settings.environ.get("PATH", "")
    if wanted == "reflex":
        return None
    if wanted == "auto":
        for name in ADAPTERS:
            cli = find_cli(name, search_path)
            if cli is not None and await has_credential(name, credentials):
                return adapter(name, cli.executable)
        return None
    cli = find_cli(wanted, search_path)
    if cli is None:
        raise ConfigInvalid(
            f"the runtime {wanted!r} is not installed",
            path=config.file,
            key="runtime.type",
            hint=f'`{install_hint(wanted)}`, or type = "auto"',
        )
    return adapter(wanted, cli.executable)


def adapter(name: str, executable: Path) -> Runtime:
    return ADAPTERS[name](executable)
