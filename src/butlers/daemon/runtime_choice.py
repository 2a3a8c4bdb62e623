"""Choose a butler's runtime: the CLI that its configuration names, or the first usable one."""

from __future__ import annotations

import shlex

from butlers.config.butler import ButlerConfig
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.runtimes.base import Runtime
from butlers.runtimes.cli import CliRuntime
from butlers.runtimes.registry import cli_runtimes
from butlers.secrets.credentials import CredentialMissing, CredentialStore


async def require_credential(runtime: str, credentials: CredentialStore) -> None:
    """Raise ``CredentialMissing`` if a CLI that is configured by name has no credential."""
    cli = cli_runtimes().get(runtime)
    if cli is not None and not await _has_credential(cli, credentials):
        first, *others = cli.credentials
        also = f" (or {', '.join(others)})" if others else ""
        raise CredentialMissing(
            f"the runtime {runtime} needs the credential {first}{also}, which is not set",
            hint=f"`butlers secrets set {shlex.quote(first)}`, or set the environment variable {first}",
        )


async def _has_credential(cli: type[CliRuntime], credentials: CredentialStore) -> bool:
    for name in cli.credentials:
        if await credentials.resolve(name, env=name):
            return True
    return False


async def choose_runtime(
    config: ButlerConfig, settings: Settings, credentials: CredentialStore
) -> Runtime | None:
    """Return the runtime; None if there are only reflexes.

    ``auto`` takes the first CLI that is installed and has a credential.
    """
    wanted, search_path = config.runtime.type, settings.environ.get("PATH", "")
    if wanted == "reflex":
        return None
    if wanted == "auto":
        for cli in cli_runtimes().values():
            executable = cli.find(search_path)
            if executable is not None and await _has_credential(cli, credentials):
                return cli(executable)
        return None
    cli = cli_runtimes()[wanted]
    executable = cli.find(search_path)
    if executable is None:
        raise ConfigInvalid(
            f"the runtime {wanted!r} is not installed",
            path=config.file,
            key="runtime.type",
            hint=f'`{cli.install_hint()}`, or type = "auto"',
        )
    return cli(executable)
