"""How a module is: active or failed and in which phase, switched on or off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from butlers.domain.errors import ButlersError, NotFound

_T = TypeVar("_T")


class ModuleHealth(StrEnum):
    ACTIVE = "active"
    FAILED = "failed"
    CASCADE_FAILED = "cascade_failed"  # something it depends on failed


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
    enabled: bool = True  # the owner's switch; it is kept across restarts
    failure_phase: FailurePhase | None = None
    failure_error: str | None = None
    blocked_by: str | None = None  # a module it depends on, which is switched off

    @property
    def active(self) -> bool:
        return self.health is ModuleHealth.ACTIVE

    @property
    def available(self) -> bool:
        """Whether its tools may be called now."""
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
    """What tools and the call pipeline know of a butler's modules."""

    def states(self) -> Sequence[ModuleState]: ...

    async def set_enabled(self, name: str, enabled: bool) -> ModuleState:
        """Switch a module on or off and keep it; NotFound where there is no such module."""

    def ensure_enabled(self, tool: str) -> None:
        """Raise ModuleDisabled when the tool belongs to a module that is switched off."""

    def is_enabled(self, tool: str) -> bool: ...

    def sensitive_arguments(self, tool: str) -> frozenset[str]:
        """Those of a tool whose values are not to be kept in the clear."""

    def instance(self, kind: type[_T]) -> _T:
        """The butler's module of this class, or the configuration of this class, for a module's tools."""


class NoModules:
    """The control of a butler that has none."""

    def states(self) -> Sequence[ModuleState]:
        return ()

    def sensitive_arguments(self, tool: str) -> frozenset[str]:
        return frozenset()

    async def set_enabled(self, name: str, enabled: bool) -> ModuleState:
        raise NotFound(f"there is no module {name!r}")

    def ensure_enabled(self, tool: str) -> None:
        return None

    def is_enabled(self, tool: str) -> bool:
        return True

    def instance(self, kind: type[_T]) -> _T:
        raise NotFound(f"there is no {kind.__name__}")


class ModuleFailed(ButlersError):
    """A module failed while the butler started."""

    code = "module_failed"

    def __init__(self, module: str, phase: FailurePhase, cause: BaseException) -> None:
        self.module, self.phase = module, phase
        hint = cause.hint if isinstance(cause, ButlersError) else None
        super().__init__(f"module {module!r} failed in {phase}: {reason(cause)}", hint=hint)


class ModuleDisabled(ButlersError):
    """The tool's module is switched off."""

    code = "module_disabled"
    default_hint = "the owner can switch it on with module.set_enabled"


def reason(error: BaseException) -> str:
    """An exception in one line. Its type says something only where the author did not."""
    if isinstance(error, ButlersError):
        return error.message
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
