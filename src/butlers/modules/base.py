"""Module interface, the registrar for its tools, and the collection of offered tools."""

from __future__ import annotations

import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from butlers.config.values import ConfigTable
from butlers.db.database import Connection, Database
from butlers.domain.caller import SESSIONS
from butlers.domain.errors import ConfigInvalid
from butlers.domain.message import RouteRequest
from butlers.domain.module import BriefPart
from butlers.domain.session import SessionRequest
from butlers.scheduling.jobs import Job
from butlers.tools.context import CallContext
from butlers.tools.declaration import Effect, ToolFunction, ToolSpec, spec_of
from butlers.tools.role import QueueWork, RoleParts

F = TypeVar("F", bound=ToolFunction)


class UndeclaredTool(ConfigInvalid):
    """A module registers a tool that it did not declare."""

    code = "undeclared_tool"


class ToolRegistrar:
    """Collector of a module's tools, with FastMCP's interface. Accepts declared tools only."""

    def __init__(self, module: str, declared: frozenset[str]) -> None:
        self._module = module
        self._declared = declared
        self._specs: dict[str, ToolSpec] = {}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self._specs.values())

    def add_tool(self, function: ToolFunction) -> None:
        """Add a function declared with ``@tool``, or a plain async function."""
        spec = getattr(function, "__tool__", None)
        self._add(spec if isinstance(spec, ToolSpec) else _without_context(function, None, None))

    def tool(
        self,
        name_or_function: Any = None,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Any:
        """Decorator like FastMCP's, for closures inside ``register_tools`` that use its ``db``."""
        if callable(name_or_function):
            self._add(_without_context(name_or_function, name, description))
            return name_or_function

        def register(function: F) -> F:
            self._add(_without_context(function, name or name_or_function, description))
            return function

        return register

    def _add(self, spec: ToolSpec) -> None:
        if spec.name not in self._declared:
            raise UndeclaredTool(
                f"the {self._module} module registers the undeclared tool {spec.name!r}",
                hint="add it to the module's `tools` or to its tool_metadata()",
            )
        if spec.name in self._specs:
            raise ConfigInvalid(f"the {self._module} module registers the tool {spec.name!r} twice")
        self._specs[spec.name] = spec


def _without_context(
    function: Callable[..., Any], name: str | None, description: str | None
) -> ToolSpec:
    """Wrap a function without a context. It manages its own transactions."""
    if not inspect.iscoroutinefunction(function):
        raise ConfigInvalid(f"the tool {function!r} is not an async function")

    @functools.wraps(function)
    async def call(ctx: CallContext, /, **arguments: Any) -> Any:
        return await function(**arguments)

    signature = inspect.signature(function)
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_ONLY, annotation=CallContext)
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[context, *signature.parameters.values()]
    )
    call.__annotations__ = {"ctx": CallContext, **function.__annotations__}
    if description is not None:
        call.__doc__ = description
    return ToolSpec(name or function.__name__, call, SESSIONS, Effect.LONG)


class ModuleConfig(ConfigTable):
    """Base of a module's section ``[modules.<name>]``, without keys. Unknown keys are errors."""

    @classmethod
    def of(cls, ctx: CallContext) -> Self:
        """Return the validated section of the called butler, for use in tools."""
        return ctx.services.modules.instance(cls)


@dataclass(frozen=True, slots=True)
class ToolMeta:
    """Security-relevant properties of a tool."""

    # Argument name -> True if its value is safety-relevant (a recipient, an amount, a sent text).
    arg_sensitivities: Mapping[str, bool] = field(default_factory=dict)
    egress: bool = False  # sends to the outside world; only the Messenger keeps such tools


@dataclass(frozen=True, slots=True)
class CredentialNeed:
    """A credential that a module needs: its name in the store, and an alternative variable."""

    name: str
    env: str | None = None
    required: bool = True


class CredentialSource(Protocol):
    """Credential lookup that a module may use."""

    async def resolve(self, name: str, *, env: str | None = None) -> str | None: ...


class Module(ABC):
    """A unit of tools and tables. Everything except the name has a default that does nothing."""

    config_schema: ClassVar[type[Any]] = ModuleConfig  # a pydantic model
    dependencies: ClassVar[Sequence[str]] = ()
    tools: ClassVar[tuple[ToolFunction, ...]] = ()
    jobs: ClassVar[tuple[Job, ...]] = ()  # functions that schedules may run, by name

    # True: its tools change only tables made with ``make_record_table``, so each call can be undone.
    keeps_records: ClassVar[bool] = False

    config: Any = None  # the validated section; set before anything below is called
    siblings: Sequence[Module] = ()  # all modules of the butler; set together with the section

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique name; also the key of its section ``[modules.<name>]``."""

    @classmethod
    def of(cls, ctx: CallContext) -> Self:
        """Return the called butler's instance of this module, for use in tools."""
        return ctx.services.modules.instance(cls)

    def credentials(self) -> Sequence[CredentialNeed]:
        """Return the needed credentials. Called after the configuration is validated."""
        return ()

    def migration_revisions(self) -> str | None:
        """Return the label of this module's migration chain, or None without tables."""
        return self.name.replace("-", "_") if self.migration_directory() else None

    def migration_directory(self) -> Path | None:
        """Return the module's own migrations folder, or None to use the label's shipped chain."""
        folder = Path(inspect.getfile(type(self))).parent / "migrations"
        return folder if folder.is_dir() else None

    async def on_startup(  # noqa: B027  (an optional hook)
        self, config: Any, db: Database, credential_store: CredentialSource | None = None
    ) -> None:
        """Start. An override may omit the third parameter."""

    async def on_shutdown(self) -> None:  # noqa: B027
        """Release what on_startup acquired."""

    def workers(self, parts: RoleParts) -> Sequence[QueueWork]:
        """Return the queues that the module works on. They run while the butler lives."""
        return ()

    async def route_accepted(  # noqa: B027
        self, connection: Connection, butler: str, route: RouteRequest
    ) -> None:
        """Take note of a routed message, in the transaction that accepts it."""

    async def session_context(self, session: SessionRequest) -> str | None:
        """Return text for the end of a session's system prompt, or None."""
        return None

    async def brief(self, ctx: CallContext, part: BriefPart) -> Sequence[str]:
        """Return lines for the morning brief or the evening review; none if there is nothing to say.

        Read with ``ctx.connection``. Each line is one short sentence, such as "Rent (900 EUR) is due today."
        """
        return ()

    def tool_metadata(self) -> Mapping[str, ToolMeta]:
        """Return metadata by tool name."""
        return {}

    def register_tools(
        self, mcp: ToolRegistrar, config: Any, db: Database
    ) -> Awaitable[None] | None:
        """Register the tools. An override may be async; it may register only declared tools."""
        for function in self.tools:
            mcp.add_tool(function)
        return None


class UnloadableModule(Module):
    """Placeholder for a module whose code cannot be loaded, so that it fails alone."""

    name = ""

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self.error = error

    def migration_directory(self) -> None:
        return None


# Names of tools that send. `bot_email_send_message` is not among them.
EGRESS = re.compile(
    r"(?:console|discord|email|matrix|signal|slack|sms|telegram|whatsapp)"
    r"_(?:send_message|reply_to_message|reply_to_thread)"
)


@dataclass(frozen=True, slots=True)
class ToolOffer:
    specs: tuple[ToolSpec, ...]
    metadata: Mapping[str, ToolMeta]

    @property
    def egress(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs if self._is_egress(spec))

    def _is_egress(self, spec: ToolSpec) -> bool:
        meta = self.metadata.get(spec.name)
        return bool(meta and meta.egress) or any(
            EGRESS.fullmatch(name) for name in (spec.name, *spec.aliases)
        )


async def collect_offer(module: Module, db: Database) -> ToolOffer:
    metadata = dict(module.tool_metadata())
    declared = frozenset({*metadata, *(spec_of(function).name for function in module.tools)})
    registrar = ToolRegistrar(module.name, declared)
    registering = module.register_tools(registrar, module.config, db)
    if registering is not None:
        await registering
    offer = ToolOffer(registrar.specs, metadata)
    _check_metadata(module, offer)
    return offer


def _check_metadata(module: Module, offer: ToolOffer) -> None:
    """Reject metadata for unknown tools or arguments, which would protect nothing."""
    takes = {spec.name: set(inspect.signature(spec.function).parameters) for spec in offer.specs}
    for tool, meta in offer.metadata.items():
        if tool not in takes:
            raise ConfigInvalid(
                f"tool_metadata() of the {module.name} module names the unknown tool {tool!r}"
            )
        if unknown := sorted(set(meta.arg_sensitivities) - takes[tool]):
            raise ConfigInvalid(
                f"tool_metadata() of the {module.name} module: {tool} has no argument {unknown[0]!r}"
            )
