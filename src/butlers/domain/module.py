"""State of a butler's modules: active or failed, enabled or disabled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from butlers.domain.errors import ButlersError, NotFound
from butlers.domain.message import RouteRequest

_T = TypeVar("_T")


class ModuleHealth(StrEnum):
    ACTIVE = "active"
    FAILED = "failed"
    CASCADE_FAILED = "cascade_failed"  # a module that it depends on failed


class BriefPart(StrEnum):
    """The part of the day whose summary the Switchboard composes from all butlers."""

    MORNING = "morning"
    EVENING = "evening"


class FailurePhase(StrEnum):
    CREDENTIALS = "credentials"
    CONFIG = "config"
    MIGRATION = "migration"
    STARTUP = "startup"
    TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class ModuleState:
    name: str
    health: ModuleHealth = ModuleHealth.ACTIVE
    enabled: bool = True  # set by the owner and stored across restarts
    failure_phase: FailurePhase | None = None
    failure_error: str | None = None
    blocked_by: str | None = None  # a disabled module that it depends on

    @property
    def active(self) -> bool:
        return self.health is ModuleHealth.ACTIVE

    @property
    def available(self) -> bool:
        """Return whether the module's tools may be called now."""
        return self.active and self.enabled and self.blocked_by is None

    def failed(self, phase: FailurePhase, error: str) -> ModuleState:
        return replace(self, health=ModuleHealth.FAILED, failure_phase=phase, failure_error=error)

    def cascade_failed(self, cause: ModuleState) -> ModuleState:
        return replace(
            self,
            health=ModuleHealth.CASCADE_FAILED,
            failure_phase=cause.failure_phase,
            failure_error=f"it depends on {cause.name}, which failed: {cause.failure_error}",
        )

    def switched(self, enabled: bool) -> ModuleState:
        return replace(self, enabled=enabled)

    def blocked(self, by: str | None) -> ModuleState:
        return replace(self, blocked_by=by)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "health": str(self.health),
            "enabled": self.enabled,
            "available": self.available,
            "failure_phase": self.failure_phase and str(self.failure_phase),
            "failure_error": self.failure_error,
            "blocked_by": self.blocked_by,
        }


class ModuleControl(Protocol):
    """Interface of a butler's modules for tools and the call pipeline."""

    def states(self) -> Sequence[ModuleState]: ...

    async def set_enabled(self, name: str, enabled: bool) -> ModuleState:
        """Enable or disable a module and store that. Raise NotFound for an unknown module."""

    def ensure_enabled(self, tool: str) -> None:
        """Raise ModuleDisabled if the tool belongs to a disabled module."""

    def is_enabled(self, tool: str) -> bool: ...

    def sensitive_arguments(self, tool: str) -> frozenset[str]:
        """Return the arguments of a tool whose values are masked in the audit log."""

    def keeps_records(self, tool: str) -> bool:
        """Return whether the tool belongs to a module that changes records alone."""

    async def brief(self, ctx: Any, part: BriefPart) -> list[str]:
        """Return the lines of all available modules for the brief."""

    def instance(self, kind: type[_T]) -> _T:
        """Return the butler's module, or module configuration, of this class."""

    async def route_accepted(self, connection: Any, route: RouteRequest) -> None:
        """Tell the modules of a routed message, in the transaction that accepts it."""


class NoModules:
    """ModuleControl of a butler without modules."""

    def states(self) -> Sequence[ModuleState]:
        return ()

    def sensitive_arguments(self, tool: str) -> frozenset[str]:
        return frozenset()

    def keeps_records(self, tool: str) -> bool:
        return False

    async def set_enabled(self, name: str, enabled: bool) -> ModuleState:
        raise NotFound(f"there is no module {name!r}")

    def ensure_enabled(self, tool: str) -> None:
        return None

    def is_enabled(self, tool: str) -> bool:
        return True

    async def brief(self, ctx: Any, part: BriefPart) -> list[str]:
        return []

    def instance(self, kind: type[_T]) -> _T:
        raise NotFound(f"there is no {kind.__name__}")

    async def route_accepted(self, connection: Any, route: RouteRequest) -> None:
        return None


class ModuleFailed(ButlersError):
    """A module failed while the butler started."""

    code = "module_failed"

    def __init__(self, module: str, phase: FailurePhase, cause: BaseException) -> None:
        self.module, self.phase = module, phase
        hint = cause.hint if isinstance(cause, ButlersError) else None
        super().__init__(f"module {module!r} failed in {phase}: {reason(cause)}", hint=hint)


class ModuleDisabled(ButlersError):
    """The tool's module is disabled."""

    code = "module_disabled"
    default_hint = "the owner can enable it with module.set_enabled"


def reason(error: BaseException) -> str:
    """Describe an exception in one line, with its type unless it is one of ours."""
    if isinstance(error, ButlersError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
