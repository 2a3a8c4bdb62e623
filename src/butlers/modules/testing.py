"""Call context for tests of a module's tools, without a running butler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from butlers.db.database import Connection
from butlers.domain.caller import Caller, CallerKind
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.module import NoModules
from butlers.modules.base import Module
from butlers.tools.context import CallContext, Services


@dataclass(frozen=True)
class _OneModule(NoModules):
    """Module lookup for ``Module.of`` with one module."""

    module: Module

    def instance(self, kind: type[Any]) -> Any:
        for part in (self.module, self.module.config):
            if isinstance(part, kind):
                return part
        return super().instance(kind)


@dataclass(frozen=True)
class _TestConfig:
    name: str
    timezone: str


@dataclass(frozen=True)
class _TestServices:
    config: _TestConfig
    modules: _OneModule
    clock: Clock


def module_context(
    module: Module,
    config: Mapping[str, Any] | None = None,
    *,
    connection: Connection | None = None,
    timezone: str = "UTC",
) -> CallContext:
    """Return the context that the module's tools get in an owner's call."""
    module.config = module.config_schema.model_validate(dict(config or {}))
    given = _TestServices(_TestConfig(module.name, timezone), _OneModule(module), SystemClock())
    services = cast(Services, given)
    caller = Caller(CallerKind.OWNER, "owner")
    return CallContext(services, caller, _connection=connection)
