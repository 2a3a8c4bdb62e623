"""What a module registers its tools on: it takes the tools that the module declared, and no others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from butlers.domain.caller import SESSIONS
from butlers.domain.errors import ConfigInvalid
from butlers.tools.base import Effect, ToolFunction, ToolSpec
from butlers.tools.context import CallContext

F = TypeVar("F", bound=ToolFunction)


class UndeclaredTool(ConfigInvalid):
    """A module offers a tool that it did not declare."""

    code = "undeclared_tool"


class ToolRegistrar:
    """Stands where a module expects the MCP server; the server itself gets the collected tools later."""

    def __init__(self, module: str, declared: frozenset[str]) -> None:
        self._module = module
        self._declared = declared
        self._specs: dict[str, ToolSpec] = {}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self._specs.values())

    def add_tool(self, function: ToolFunction) -> None:
        """Offer a function that is declared with ``@tool``, or a plain async one."""
        spec = getattr(function, "__tool__", None)
        self._take(spec if isinstance(spec, ToolSpec) else _plain(function, None, None))

    def tool(
        self,
        name_or_function: Any = None,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Any:
        """As FastMCP's decorator: for closures inside ``register_tools`` that use its ``db`` themselves."""
        if callable(name_or_function):
            self._take(_plain(name_or_function, name, description))
            return name_or_function

        def register(function: F) -> F:
            self._take(_plain(function, name or name_or_function, description))
            return function

        return register

    def _take(self, spec: ToolSpec) -> None:
        if spec.name not in self._declared:
            raise UndeclaredTool(
                f"the {self._module} module offers the tool {spec.name!r}, which it did not declare",
                hint="name it in the module's `tools` or in its tool_metadata()",
            )
        if spec.name in self._specs:
            raise ConfigInvalid(f"the {self._module} module offers the tool {spec.name!r} twice")
        self._specs[spec.name] = spec


def _plain(function: Callable[..., Any], name: str | None, description: str | None) -> ToolSpec:
    """A function without a context, made one that has it. It sees to its own transactions."""
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
