"""Choose a butler's runtime: the CLI that its configuration names, or the first usable one."""

from __future__ import annotations

import shlex

import structlog

from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.config.prices import PriceTable
from butlers.config.settings import Settings
from butlers.domain.errors import ConfigInvalid
from butlers.domain.session import Usage
from butlers.runtimes.base import Runtime
from butlers.runtimes.cli import CliRuntime
from butlers.runtimes.registry import cli_runtimes
from butlers.secrets.credentials import CredentialMissing, CredentialStore

log = structlog.get_logger()

_ANY_USAGE = Usage(input_tokens=1, output_tokens=1, cached_tokens=0)


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


async def with_small_model(
    config: ButlerConfig, runtime: Runtime | None, credentials: CredentialStore
) -> ButlerConfig:
    """Let the Switchboard, whose sessions only choose a butler, use a cheap model.

    Not if a model is configured, nor at another address than the vendor's: which models are there is unknown.
    """
    named = config.runtime.model is not None or bool(config.runtime.args)
    if config.role is not ButlerKind.SWITCHBOARD or named or not isinstance(runtime, CliRuntime):
        return config
    address = runtime.settings[0]
    declared = (*config.env.required, *config.env.optional)
    if address in declared and await credentials.resolve(address, env=address):
        return config
    chosen = config.runtime.model_copy(update={"model": runtime.small_model})
    return config.model_copy(update={"runtime": chosen})


def has_sessions(config: ButlerConfig) -> bool:
    """Return whether messages start sessions of the butler. The Messenger answers none."""
    return config.role is not ButlerKind.MESSENGER


def runtime_warnings(
    config: ButlerConfig, runtime: Runtime | None, prices: PriceTable
) -> tuple[str, ...]:
    """Log and return what the owner should know of a CLI: an untested version, an unknown price."""
    if not isinstance(runtime, CliRuntime):
        return ()
    found = []
    version = runtime.stated_version(runtime.executable)
    if version is not None and version != runtime.pinned:
        found.append(
            f"{runtime.name} {version} is not tested; {runtime.pinned} is: `{runtime.install_hint()}`"
        )
    model = config.runtime.model or runtime.default_model
    if prices.cost(model, _ANY_USAGE) is None:
        found.append(f"the price of {model} is unknown; add it to prices.toml")
    for warning in found:
        log.warning("runtime needs attention", why=warning)
    return tuple(found)
