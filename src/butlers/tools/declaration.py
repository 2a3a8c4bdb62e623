"""Declaration of tools: a module-level async function with the decorator ``@tool``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from butlers.domain.caller import CallerKind

ToolFunction = Callable[..., Awaitable[Any]]
# Called with the context, the arguments and the reason when the arguments are invalid.
OnInvalid = Callable[[Any, dict[str, Any], str], None]
F = TypeVar("F", bound=ToolFunction)


class Effect(StrEnum):
    READ = "read"  # changes nothing; gets a connection
    LOOK = "look"  # changes nothing; may wait, so it has no connection
    WRITE = "write"  # one transaction: effect, journal and audit commit together
    LONG = "long"  # may take long, so it has no connection and opens its own transactions


@dataclass(frozen=True, slots=True)
class ToolSpec:
    name: str
    function: ToolFunction
    callers: frozenset[CallerKind]
    effect: Effect
    aliases: tuple[str, ...] = ()
    on_invalid: OnInvalid | None = None
    about: str | None = None  # description instead of the docstring
    parameters: Mapping[str, Any] | None = None  # schema of a tool from outside this package
    outside: bool = False  # the result may contain text of other people: data, never instructions

    @property
    def is_read_only(self) -> bool:
        return self.effect in (Effect.READ, Effect.LOOK)

    @property
    def description(self) -> str:
        return inspect.cleandoc(self.about or self.function.__doc__ or "")


def tool(
    *,
    callers: frozenset[CallerKind],
    effect: Effect = Effect.WRITE,
    name: str | None = None,
    aliases: tuple[str, ...] = (),
    on_invalid: OnInvalid | None = None,
    outside: bool = False,
) -> Callable[[F], F]:
    """Declare a function as a tool. It stays an ordinary function with the attribute ``__tool__``."""

    def declare(function: F) -> F:
        spec = ToolSpec(
            name or function.__name__,
            function,
            callers,
            effect,
            aliases,
            on_invalid,
            outside=outside,
        )
        function.__tool__ = spec  # type: ignore[attr-defined]
        return function

    return declare


def spec_of(function: ToolFunction) -> ToolSpec:
    spec = getattr(function, "__tool__", None)
    if not isinstance(spec, ToolSpec):
        raise TypeError(f"{function!r} is not declared with @tool")
    return spec
