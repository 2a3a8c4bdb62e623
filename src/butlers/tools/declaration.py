"""What a tool is: a module-level async function, and what its declaration says about it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from butlers.domain.caller import CallerKind

ToolFunction = Callable[..., Awaitable[Any]]
Misused = Callable[
    [Any, dict[str, Any], str], None
]  # is told of arguments that do not fit, and why
F = TypeVar("F", bound=ToolFunction)


class Effect(StrEnum):
    READ = "read"  # changes nothing; gets a connection
    LOOK = "look"  # changes nothing; looks elsewhere or may wait, so it holds no connection
    WRITE = "write"  # one transaction: effect, journal and audit commit together
    LONG = "long"  # may take long, so it holds no connection; it opens transactions of its own


@dataclass(frozen=True, slots=True)
class ToolSpec:
    name: str
    function: ToolFunction
    callers: frozenset[CallerKind]
    effect: Effect
    aliases: tuple[str, ...] = ()
    misused: Misused | None = None
    about: str | None = (
        None  # in the place of the docstring, where what it says depends on the butler
    )
    parameters: Mapping[str, Any] | None = None  # of a tool that is somebody else's: its schema
    outside: bool = False  # its answer may hold what others wrote: data, and never the owner's word

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
    misused: Misused | None = None,
    outside: bool = False,
) -> Callable[[F], F]:
    """Declare a function a tool. It stays an ordinary function; the declaration rides on it."""

    def declare(function: F) -> F:
        spec = ToolSpec(
            name or function.__name__, function, callers, effect, aliases, misused, outside=outside
        )
        function.__tool__ = spec  # type: ignore[attr-defined]
        return function

    return declare


def spec_of(function: ToolFunction) -> ToolSpec:
    spec = getattr(function, "__tool__", None)
    if not isinstance(spec, ToolSpec):
        raise TypeError(f"{function!r} is not declared with @tool")
    return spec
