"""A context for the tests of a module's own tools: real configuration, no butler around it."""

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
    """Just enough of a butler's modules for ``Module.of``."""

    module: Module

    def instance(self, kind: type[Any]) -> Any:
        for part in (self.module, self.module.config):
            if isinstance(part, kind):
                return part
        return super().instance(kind)


@dataclass(frozen=True)
class _Bare:
    modules: _OneModule
    clock: Clock


def module_context(
    module: Module,
    config: Mapping[str, Any] | None = None,
    *,
    connection: Connection | None = None,
) -> CallContext:
    """What a tool of this module is handed when the owner calls it with this configuration."""
    module.config = module.config_schema.model_validate(dict(config or {}))
    services = cast(Services, _Bare(_OneModule(module), SystemClock()))
    caller = Caller(CallerKind.OWNER, "owner")
    return CallContext(services, caller, _connection=connection)
