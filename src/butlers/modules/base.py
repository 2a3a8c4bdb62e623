"""What a module is. Its tools are a declared tuple of module-level functions, never one function with all."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from butlers.config.values import Section
from butlers.db.database import Database
from butlers.domain.session import SessionRequest
from butlers.modules.tool_registrar import ToolRegistrar
from butlers.scheduling.jobs import Job
from butlers.tools.base import ToolFunction
from butlers.tools.context import CallContext


class ModuleConfig(Section):
    """A module's section ``[modules.<name>]``. This one has no keys, and an unknown key is an error."""

    @classmethod
    def of(cls, ctx: CallContext) -> Self:
        """The validated section of the butler that the call is for, for the tools of the module."""
        return ctx.services.modules.instance(cls)


@dataclass(frozen=True, slots=True)
class ToolMeta:
    """What is to be known of a tool before it is let loose."""

    # Argument name -> whether its value is a matter of safety (a recipient, an amount, a text sent out).
    arg_sensitivities: Mapping[str, bool] = field(default_factory=dict)
    egress: bool = False  # it speaks to the world outside; only the Messenger keeps such a tool


@dataclass(frozen=True, slots=True)
class CredentialNeed:
    """A credential that a module asks for: its name in the store, and the variable that may hold it."""

    name: str
    env: str | None = None
    required: bool = True


class CredentialSource(Protocol):
    """What a module may ask its butler's credential store."""

    async def resolve(self, name: str, *, env: str | None = None) -> str | None: ...


class Module(ABC):
    """One unit of tools and tables. Everything but the name has a default that does nothing."""

    config_schema: ClassVar[type[Any]] = ModuleConfig  # a pydantic model
    dependencies: ClassVar[Sequence[str]] = ()
    tools: ClassVar[tuple[ToolFunction, ...]] = ()
    jobs: ClassVar[tuple[Job, ...]] = ()  # what schedules may run without a model, by function name

    config: Any = None  # the validated section; set before anything below is called

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique; also the key of its section ``[modules.<name>]``."""

    @classmethod
    def of(cls, ctx: CallContext) -> Self:
        """The module a tool belongs to, with what its start made."""
        return ctx.services.modules.instance(cls)

    def credentials(self) -> Sequence[CredentialNeed]:
        """What it can not work without; asked after its configuration is known."""
        return ()

    def migration_revisions(self) -> str | None:
        """The label of this module's migration chain, when it has tables of its own."""
        return self.name.replace("-", "_") if self.migration_directory() else None

    def migration_directory(self) -> Path | None:
        """The chain's folder where the module ships it; None: the label's folder of the shipped chains."""
        folder = Path(inspect.getfile(type(self))).parent / "migrations"
        return folder if folder.is_dir() else None

    async def on_startup(  # noqa: B027  (doing nothing is a good answer)
        self, config: Any, db: Database, credential_store: CredentialSource | None = None
    ) -> None:
        """Get ready. An override may leave the third argument out."""

    async def on_shutdown(self) -> None:  # noqa: B027
        """Let go of what on_startup took."""

    async def session_context(self, session: SessionRequest) -> str | None:
        """What a session should know from this module; it stands at the end of the system prompt."""
        return None

    def tool_metadata(self) -> Mapping[str, ToolMeta]:
        """What is to be known of its tools, by their names."""
        return {}

    def register_tools(
        self, mcp: ToolRegistrar, config: Any, db: Database
    ) -> Awaitable[None] | None:
        """Offer its tools. An override may be async, and may offer no tool that is not declared."""
        for function in self.tools:
            mcp.add_tool(function)
        return None


class Unloadable(Module):
    """Stands in for a module whose code can not be loaded, so that it fails alone."""

    name = ""

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self.error = error

    def migration_directory(self) -> None:
        return None
