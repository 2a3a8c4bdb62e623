"""A butler's modules from their load to their end. One that fails takes its dependants along, nobody else.

Each phase asks every module that is still active. What a module raises becomes its state; with
``strict_modules`` it ends the start instead, after the modules that had started were shut down in reverse.
A database that is gone is no module's failure and is raised in both.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import structlog
from pydantic import Field, create_model

from butlers.config.butler import ButlerConfig, ButlerKind
from butlers.config.document import Document
from butlers.db.database import Database
from butlers.db.migrations import Chain
from butlers.domain.errors import ButlersError, DatabaseUnavailable, NotFound
from butlers.domain.module import (
    FailurePhase,
    ModuleDisabled,
    ModuleFailed,
    ModuleState,
    reason,
)
from butlers.domain.redaction import redactor
from butlers.domain.session import SessionRequest
from butlers.modules import flags as module_flags
from butlers.modules.base import CredentialSource, Module, ToolMeta, Unloadable
from butlers.modules.chains import ModuleChains
from butlers.modules.offer import Offer, collect_offer
from butlers.modules.registry import load_modules
from butlers.secrets.credentials import CredentialMissing
from butlers.tools.base import ToolSpec

log = structlog.get_logger()

STARTUP_TIMEOUT_S = 60.0
SHUTDOWN_TIMEOUT_S = 10.0
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_T = TypeVar("_T")


class ModuleSet:
    """The modules of one butler, in order, with the state of each."""

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
        """Found, imported and sorted; a wrong graph is a ConfigInvalid, strict or not."""
        return cls(load_modules(config), config)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    # -- the phases, in this order -------------------------------------------------------------

    async def validate_config(self) -> None:
        text = self._config.file.read_text(encoding="utf-8-sig")
        for module in self._active():
            async with self._phase(module, FailurePhase.CONFIG):
                if isinstance(module, Unloadable):
                    raise module.error
                module.config = _validated(module, self._config, text)

    def chains(self, versions: Path) -> list[Chain]:
        """The migrations of its modules, in their order, for whoever migrates without starting."""
        chains = ModuleChains(self._config.name, versions)
        return [chain for module in self._active() if (chain := chains.of(module)) is not None]

    async def migrate(self, run: Callable[[Chain], Awaitable[object]], versions: Path) -> None:
        """``run`` applies one chain to the butler's schema."""
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
        """Read the owner's switches, then ``on_startup`` in order."""
        self._database = db
        await self._load_flags(db)
        for module in self._active():
            async with self._phase(module, FailurePhase.STARTUP):
                await self._within_limit(_start(module, db, credential_store))
                self._started.append(module)
                log.info("module initialized", module=module.name)

    async def collect_tools(self, db: Database) -> list[tuple[str, ToolSpec]]:
        """The tools of the active modules, each with its owner as an error message names it."""
        offers: list[tuple[Module, Offer]] = []
        for module in self._active():
            async with self._phase(module, FailurePhase.TOOLS):
                offers.append((module, await collect_offer(module, db)))
        return [
            (f"module {module.name}", spec)
            for module, offer in offers
            if self._states[module.name].active  # a later one may have taken it along
            for spec in self._admit(module, offer)
        ]

    async def session_context(self, session: SessionRequest) -> list[str]:
        """What its modules have for a session. One that fails has nothing, and the session goes on."""
        found = []
        for module in self.active:
            if not self.state(module.name).available:
                continue
            try:
                text = await module.session_context(session)
            except Exception:  # a loop edge: a module is anybody's code
                log.exception("module gave no context", module=module.name)
            else:
                found += [text] if text else []
        return found

    async def stop(self) -> None:
        """``on_shutdown`` of what was started, in reverse. An error there is logged and stops nothing."""
        while self._started:
            await self._shut_down(self._started.pop())

    # -- how they are ---------------------------------------------------------------------------

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
            near = get_close_matches(name, list(self._states), n=1)
            listed = ", ".join(self._states) or "none"
            raise NotFound(
                f"there is no module {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                hint=f"modules of {self._config.name}: {listed}",
            )
        return self._states[name].blocked(self._switched_off_below(name))

    def tool_metadata(self) -> Mapping[str, ToolMeta]:
        """What the active modules say of their tools."""
        return self._metadata

    def sensitive_arguments(self, tool: str) -> frozenset[str]:
        meta = self._metadata.get(tool)
        marks = meta.arg_sensitivities if meta else {}
        return frozenset(name for name, sensitive in marks.items() if sensitive)

    def instance(self, kind: type[_T]) -> _T:
        for part in (part for module in self.modules for part in (module, module.config)):
            if isinstance(part, kind):
                return part
        raise NotFound(f"{self._config.name} has no {kind.__name__}")

    # -- switching them on and off --------------------------------------------------------------

    async def set_enabled(self, name: str, enabled: bool) -> ModuleState:
        """Kept first, thrown after: a switch that could not be kept is not thrown."""
        self.state(name)
        if self._database is None:
            raise RuntimeError("modules are switched after they were started")
        async with self._switching:
            async with self._database.transaction() as connection:
                await module_flags.save_flag(connection, name, enabled)
            self._states[name] = self._states[name].switched(enabled)
        log.info("module enabled" if enabled else "module disabled", module=name)
        return self.state(name)

    def is_enabled(self, tool: str) -> bool:
        """Whether a tool may be called, as far as modules have a say: the core's always may."""
        return tool not in self._owners or self.state(self._owners[tool]).available

    def ensure_enabled(self, tool: str) -> None:
        if self.is_enabled(tool):
            return
        state = self.state(self._owners[tool])
        off = state.name if not state.enabled else state.blocked_by
        because = "" if off == state.name else f", because it depends on {off}"
        raise ModuleDisabled(
            f"{tool} belongs to the module {state.name}, which is switched off{because}",
            hint=f'the owner can switch it on: module.set_enabled {{"name": "{off}", "enabled": true}}',
        )

    # -- inside ---------------------------------------------------------------------------------

    def _active(self) -> Iterator[Module]:
        """Asked anew at each step: one that failed meanwhile, by itself or through another, is left out."""
        return (module for module in self.modules if self._states[module.name].active)

    @asynccontextmanager
    async def _phase(self, module: Module, phase: FailurePhase) -> AsyncIterator[None]:
        """What one module does in one phase."""
        try:
            yield
        except DatabaseUnavailable:
            raise
        except Exception as error:  # a stranger's code; it becomes the state
            self._fail(module, phase, error)
            if self._config.strict_modules:
                await self.stop()
                raise ModuleFailed(module.name, phase, error) from error
            await self._stop_failed()

    def _fail(self, module: Module, phase: FailurePhase, error: Exception) -> None:
        said = redactor.scrub(reason(error))
        state = self._states[module.name].failed(phase, said)
        self._states[module.name] = state
        trace = None if isinstance(error, ButlersError) else error
        log.error("module failed", module=module.name, phase=str(phase), error=said, exc_info=trace)
        for dependant in self._dependants(module.name):
            self._states[dependant] = self._states[dependant].cascade_failed(state)
            log.error("module failed", module=dependant, phase=str(phase), cause=module.name)

    def _dependants(self, name: str) -> list[str]:
        """All that rest on it, directly or through others, as long as they are active."""
        down = {name}
        for module in self.modules:  # in order, so what a module depends on was seen before it
            if down.intersection(module.dependencies):
                down.add(module.name)
        return [m.name for m in self._active() if m.name in down - {name}]

    def _switched_off_below(self, name: str) -> str | None:
        """The first module that this one rests on and that the owner switched off."""
        above = {name}
        for module in reversed(self.modules):
            if module.name in above:
                above.update(module.dependencies)
        off = (m.name for m in self.modules if m.name in above and not self._states[m.name].enabled)
        return next((other for other in off if other != name), None)

    async def _within_limit(self, starting: Awaitable[None]) -> None:
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
        """One that failed after its start does not go on half alive, nor what rests on it."""
        for module in reversed(self._started.copy()):
            if not self._states[module.name].active:
                self._started.remove(module)
                await self._shut_down(module)

    async def _shut_down(self, module: Module) -> None:
        try:
            async with asyncio.timeout(self._shutdown_timeout_s):
                await module.on_shutdown()
        except Exception as error:  # a stranger's code; the others must end too
            log.error("module shutdown failed", module=module.name, exc_info=error)
        else:
            log.info("module shutdown", module=module.name)

    async def _load_flags(self, db: Database) -> None:
        async with db.transaction() as connection:
            flags = await module_flags.load_flags(connection, self._states)
        for name, enabled in flags.items():
            self._states[name] = self._states[name].switched(enabled)
            if not enabled:
                log.info("module disabled", module=name)

    def _admit(self, module: Module, offer: Offer) -> list[ToolSpec]:
        """The tools this butler keeps: what speaks to the world outside is the Messenger's alone."""
        self._metadata |= offer.metadata
        stripped = () if self._config.role is ButlerKind.MESSENGER else offer.egress
        if stripped:
            log.warning("egress tools stripped", module=module.name, tools=list(stripped))
        self.stripped_tools += stripped
        kept = [spec for spec in offer.specs if spec.name not in stripped]
        self._owners |= {name: module.name for spec in kept for name in (spec.name, *spec.aliases)}
        return kept


def _validated(module: Module, config: ButlerConfig, text: str) -> Any:
    """The module's section as its own model; what is wrong there names file, key and line."""
    section = create_model("Modules", section=(module.config_schema, Field(alias=module.name)))
    file = create_model("File", modules=(section, ...))
    written = {"modules": {module.name: config.modules[module.name]}}
    return Document(config.file, text, written).validate(file).modules.section  # type: ignore[attr-defined]


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
            f"not set: {names}", hint=f"`butlers secrets set {missing[0].name}`{also}"
        )


async def _start(module: Module, db: Database, store: CredentialSource | None) -> None:
    """``on_startup`` takes two or three arguments, as its author chose."""
    takes = inspect.signature(module.on_startup).parameters.values()
    positional = [each for each in takes if each.kind in _POSITIONAL]
    if len(positional) >= 3 or any(each.kind is each.VAR_POSITIONAL for each in takes):
        await module.on_startup(module.config, db, store)
    elif any(each.name == "credential_store" for each in takes):  # by keyword alone
        await module.on_startup(module.config, db, credential_store=store)
    else:
        await module.on_startup(module.config, db)
