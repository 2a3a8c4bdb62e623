"""Lifecycle of a butler's modules: configuration, migration, start, tools, stop, enable and disable.

Each phase calls every module that is still active. An exception becomes the module's state and fails its
dependents; with ``strict_modules`` it ends the start instead, after started modules were stopped in
reverse. A lost database connection is not a module's failure and is always raised.
"""

from __future__ import annotations

import asyncio
import inspect
import shlex
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import structlog
from pydantic import Field, create_model

from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.db.database import Connection, Database, is_gone, set_provenance
from butlers.db.migrations import Chain
from butlers.domain.errors import ButlersError, DatabaseUnavailable, NotFound
from butlers.domain.message import RouteRequest
from butlers.domain.module import (
    BriefPart,
    FailurePhase,
    ModuleDisabled,
    ModuleFailed,
    ModuleState,
    reason,
)
from butlers.domain.provenance import DAEMON
from butlers.domain.redaction import redactor
from butlers.domain.session import SessionRequest
from butlers.modules.base import (
    CredentialSource,
    Module,
    ToolMeta,
    ToolOffer,
    UnloadableModule,
    collect_offer,
)
from butlers.modules.registry import ModuleChains, load_modules, suggestion
from butlers.secrets.credentials import CredentialMissing
from butlers.tools.context import CallContext
from butlers.tools.declaration import ToolSpec
from butlers.tools.state import put_entry


def flag_key(module: str) -> str:
    return f"module:{module}:enabled"


async def read_flags(connection: Connection, modules: Iterable[str]) -> dict[str, bool]:
    """Return the stored enabled flags. A value that is not true counts as false."""
    keys = {flag_key(module): module for module in modules}
    rows = await connection.fetch(
        "SELECT key, value FROM state WHERE key = ANY($1::text[])", list(keys)
    )
    return {keys[row["key"]]: row["value"] is True for row in rows}


log = structlog.get_logger()

STARTUP_TIMEOUT_S = 60.0
SHUTDOWN_TIMEOUT_S = 10.0
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_T = TypeVar("_T")


class ModuleSet:
    """Modules of one butler, in order, with their states."""

    def __init__(
        self,
        modules: Sequence[Module],
        config: ButlerConfig,
        *,
        startup_timeout_s: float = STARTUP_TIMEOUT_S,
        shutdown_timeout_s: float = SHUTDOWN_TIMEOUT_S,
    ) -> None:
        self.modules = tuple(modules)
        self.stripped_tools: tuple[str, ...] = ()
        self._config = config
        self._startup_timeout_s = startup_timeout_s
        self._shutdown_timeout_s = shutdown_timeout_s
        self._states = {module.name: ModuleState(module.name) for module in modules}
        self._started: list[Module] = []
        self._owners: dict[str, str] = {}  # tool name or alias -> module
        self._metadata: dict[str, ToolMeta] = {}
        self._database: Database | None = None
        self._switching = asyncio.Lock()

    @classmethod
    def load(cls, config: ButlerConfig) -> ModuleSet:
        """Find, import and sort the modules; raise ConfigInvalid for an invalid graph."""
        return cls(load_modules(config), config)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    # -- phases, in order

    async def validate_config(self) -> None:
        for module in self._active():
            async with self._phase(module, FailurePhase.CONFIG):
                if isinstance(module, UnloadableModule):
                    raise module.error
                module.config = validated_section(module.name, module.config_schema, self._config)
                module.siblings = self.modules

    def chains(self, versions: Path) -> list[Chain]:
        """Return the modules' migration chains, in order, for migrating without a start."""
        chains = ModuleChains(self._config.name, versions)
        return [chain for module in self._active() if (chain := chains.of(module)) is not None]

    async def migrate(self, run: Callable[[Chain], Awaitable[object]], versions: Path) -> None:
        """Migrate each module; ``run`` applies one chain to the butler's schema."""
        chains = ModuleChains(self._config.name, versions)
        for module in self._active():
            async with self._phase(module, FailurePhase.MIGRATION):
                if (chain := chains.of(module)) is not None:
                    await run(chain)

    async def check_credentials(self, store: CredentialSource) -> None:
        for module in self._active():
            async with self._phase(module, FailurePhase.CREDENTIALS):
                await _check_credentials(module, store)

    async def start(self, db: Database, credential_store: CredentialSource | None = None) -> None:
        """Read the enabled flags, then call ``on_startup`` in order."""
        self._database = db
        await self._load_flags(db)
        for module in self._active():
            async with self._phase(module, FailurePhase.STARTUP):
                await self._with_timeout(_start(module, db, credential_store))
                self._started.append(module)
                log.info("module initialized", module=module.name)

    async def collect_tools(self, db: Database) -> list[tuple[str, ToolSpec]]:
        """Return the tools of active modules, each with its module's name for error messages."""
        offers: list[tuple[Module, ToolOffer]] = []
        for module in self._active():
            async with self._phase(module, FailurePhase.TOOLS):
                offers.append((module, await collect_offer(module, db)))
        return [
            (f"module {module.name}", spec)
            for module, offer in offers
            if self._states[module.name].active  # it may have failed with a later module
            for spec in self._accept_tools(module, offer)
        ]

    async def session_context(self, session: SessionRequest) -> list[str]:
        """Return the modules' texts for a session. A failing module is logged and skipped."""
        found = []
        for module in self.active:
            if not self.state(module.name).available:
                continue
            try:
                text = await module.session_context(session)
            except Exception:  # loop edge: modules are user code
                log.exception("session_context failed", module=module.name)
            else:
                found += [text] if text else []
        return found

    async def route_accepted(self, connection: Connection, route: RouteRequest) -> None:
        """Tell the modules of a routed message. What a failing module wrote is rolled back alone."""
        for module in self.active:
            if not self.state(module.name).available:
                continue
            try:
                async with connection.transaction():
                    await module.route_accepted(connection, self._config.name, route)
            except Exception as error:  # loop edge: modules are user code
                if is_gone(error):
                    raise
                log.exception("route_accepted failed", module=module.name)

    async def brief(self, ctx: CallContext, part: BriefPart) -> list[str]:
        """Return the lines of all available modules for the morning brief or the evening review."""
        available = [module for module in self.active if self.state(module.name).available]
        return [line for module in available for line in await module.brief(ctx, part)]

    async def stop(self) -> None:
        """Call ``on_shutdown`` of started modules in reverse; log errors and continue."""
        while self._started:
            await self._shut_down(self._started.pop())

    # -- states

    @property
    def active(self) -> tuple[Module, ...]:
        return tuple(self._active())

    @property
    def healthy(self) -> bool:
        return all(state.active for state in self._states.values())

    def states(self) -> tuple[ModuleState, ...]:
        return tuple(self.state(module.name) for module in self.modules)

    def state(self, name: str) -> ModuleState:
        if name not in self._states:
            listed = ", ".join(self._states) or "none"
            raise NotFound(
                f"unknown module {name!r}{suggestion(name, self._states)}",
                hint=f"modules of {self._config.name}: {listed}",
            )
        return self._states[name].blocked(self._disabled_dependency(name))

    def tool_metadata(self) -> Mapping[str, ToolMeta]:
        """Return the metadata of the active modules' tools."""
        return self._metadata

    def sensitive_arguments(self, tool: str) -> frozenset[str]:
        meta = self._metadata.get(tool)
        marks = meta.arg_sensitivities if meta else {}
        return frozenset(name for name, sensitive in marks.items() if sensitive)

    def keeps_records(self, tool: str) -> bool:
        owner = self._owners.get(tool)
        return any(module.keeps_records for module in self.modules if module.name == owner)

    def instance(self, kind: type[_T]) -> _T:
        for part in (part for module in self.modules for part in (module, module.config)):
            if isinstance(part, kind):
                return part
        raise NotFound(f"{self._config.name} has no {kind.__name__}")

    # -- enable and disable

    async def set_enabled(self, name: str, enabled: bool) -> ModuleState:
        """Store the flag, then apply it."""
        self.state(name)
        if self._database is None:
            raise RuntimeError("set_enabled before start")
        async with self._switching:
            async with self._database.transaction() as connection:
                await set_provenance(connection, DAEMON)
                await put_entry(connection, flag_key(name), enabled)
            self._states[name] = self._states[name].switched(enabled)
        log.info("module enabled" if enabled else "module disabled", module=name)
        return self.state(name)

    def is_enabled(self, tool: str) -> bool:
        """Return False if the tool belongs to a disabled module."""
        return tool not in self._owners or self.state(self._owners[tool]).available

    def ensure_enabled(self, tool: str) -> None:
        if self.is_enabled(tool):
            return
        state = self.state(self._owners[tool])
        off = state.name if not state.enabled else state.blocked_by
        because = "" if off == state.name else f", because it depends on {off}"
        raise ModuleDisabled(
            f"{tool} belongs to the module {state.name}, which is disabled{because}",
            hint=f'the owner can enable it: module.set_enabled {{"name": "{off}", "enabled": true}}',
        )

    # -- internals

    def _active(self) -> Iterator[Module]:
        """Iterate over active modules lazily, so that modules that fail meanwhile are skipped."""
        return (module for module in self.modules if self._states[module.name].active)

    @asynccontextmanager
    async def _phase(self, module: Module, phase: FailurePhase) -> AsyncIterator[None]:
        """Turn an exception into the module's failed state, or raise it if strict."""
        try:
            yield
        except DatabaseUnavailable:
            raise
        except Exception as error:  # user code; becomes the module's state
            self._fail(module, phase, error)
            if self._config.strict_modules:
                await self.stop()
                raise ModuleFailed(module.name, phase, error) from error
            await self._stop_failed()

    def _fail(self, module: Module, phase: FailurePhase, error: Exception) -> None:
        message = redactor.scrub(reason(error))
        state = self._states[module.name].failed(phase, message)
        self._states[module.name] = state
        trace = None if isinstance(error, ButlersError) else error
        log.error(
            "module failed", module=module.name, phase=str(phase), error=message, exc_info=trace
        )
        for dependent in self._dependents(module.name):
            self._states[dependent] = self._states[dependent].cascade_failed(state)
            log.error("module failed", module=dependent, phase=str(phase), cause=module.name)

    def _dependents(self, name: str) -> list[str]:
        """Return the active modules that depend on it, directly or indirectly."""
        down = {name}
        for module in self.modules:  # in order: dependencies come first
            if down.intersection(module.dependencies):
                down.add(module.name)
        return [m.name for m in self._active() if m.name in down - {name}]

    def _disabled_dependency(self, name: str) -> str | None:
        """Return the first disabled module that this one depends on, or None."""
        above = {name}
        for module in reversed(self.modules):
            if module.name in above:
                above.update(module.dependencies)
        off = (m.name for m in self.modules if m.name in above and not self._states[m.name].enabled)
        return next((other for other in off if other != name), None)

    async def _with_timeout(self, starting: Awaitable[None]) -> None:
        limit = asyncio.timeout(self._startup_timeout_s)
        try:
            async with limit:
                await starting
        except TimeoutError as error:
            if not limit.expired():
                raise  # the module's own
            raise TimeoutError(
                f"on_startup took longer than {self._startup_timeout_s:g} s"
            ) from error

    async def _stop_failed(self) -> None:
        """Shut down modules that failed after their start."""
        for module in reversed(self._started.copy()):
            if not self._states[module.name].active:
                self._started.remove(module)
                await self._shut_down(module)

    async def _shut_down(self, module: Module) -> None:
        try:
            async with asyncio.timeout(self._shutdown_timeout_s):
                await module.on_shutdown()
        except Exception as error:  # user code; the others must stop too
            log.error("module shutdown failed", module=module.name, exc_info=error)
        else:
            log.info("module shutdown", module=module.name)

    async def _load_flags(self, db: Database) -> None:
        async with db.transaction() as connection:
            flags = await read_flags(connection, self._states)
        for name, enabled in flags.items():
            self._states[name] = self._states[name].switched(enabled)
            if not enabled:
                log.info("module disabled", module=name)

    def _accept_tools(self, module: Module, offer: ToolOffer) -> list[ToolSpec]:
        """Return the tools that this butler keeps: only the Messenger keeps egress tools."""
        self._metadata |= offer.metadata
        stripped = () if self._config.role is ButlerKind.MESSENGER else offer.egress
        if stripped:
            log.warning("egress tools stripped", module=module.name, tools=list(stripped))
        self.stripped_tools += stripped
        kept = [spec for spec in offer.specs if spec.name not in stripped]
        self._owners |= {name: module.name for spec in kept for name in (spec.name, *spec.aliases)}
        return kept


def validated_section(name: str, schema: type[Any], config: ButlerConfig) -> Any:
    """Validate a module's section; errors name file, key and line."""
    section = create_model("Modules", section=(schema, Field(alias=name)))
    file = create_model("File", modules=(section, ...))
    written = {"modules": {name: config.modules[name]}}
    return config.document(written).validate(file).modules.section  # type: ignore[attr-defined]


async def _check_credentials(module: Module, store: CredentialSource) -> None:
    missing = [
        need
        for need in module.credentials()
        if need.required and await store.resolve(need.name, env=need.env) is None
    ]
    if missing:
        names = ", ".join(need.name for need in missing)
        variables = ", ".join(need.env for need in missing if need.env)
        also = f", or set {variables}" if variables else ""
        raise CredentialMissing(
            f"not set: {names}", hint=f"`butlers secrets set {shlex.quote(missing[0].name)}`{also}"
        )


async def _start(module: Module, db: Database, store: CredentialSource | None) -> None:
    """Call ``on_startup`` with the two or three arguments that it takes."""
    takes = inspect.signature(module.on_startup).parameters.values()
    positional = [each for each in takes if each.kind in _POSITIONAL]
    if len(positional) >= 3 or any(each.kind is each.VAR_POSITIONAL for each in takes):
        await module.on_startup(module.config, db, store)
    elif any(each.name == "credential_store" for each in takes):  # keyword-only
        await module.on_startup(module.config, db, credential_store=store)
    else:
        await module.on_startup(module.config, db)
