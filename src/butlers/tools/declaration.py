"""Declaration of tools: a module-level async function with the decorator ``@tool``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from butlers.domain.approval import RiskTier
from butlers.domain.caller import CallerKind

ToolFunction = Callable[..., Awaitable[Any]]
# Called with the context, the arguments and the reason when the arguments are invalid.
OnInvalid = Callable[[Any, dict[str, Any], str], None]
# Called with the context, the arguments and the reason when the owner rejects a waiting call.
OnRefused = Callable[[Any, dict[str, Any], str], Awaitable[None]]
# Called with the context and the result of an approved call, to undo it.
Reverse = Callable[[Any, dict[str, Any]], Awaitable[None]]
F = TypeVar("F", bound=ToolFunction)
SHARED_PREFIX = "shared."  # of the names by which the Switchboard calls tools for other butlers


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
    # The owner is asked before a session's call runs; completes "the butler wants to …", such as
    # "spend money" or "share data with another butler".
    asks: str | None = None
    risk: RiskTier | None = None  # None: as configured
    on_refused: OnRefused | None = None
    unique: tuple[str, ...] = ()  # arguments that differ in every call, such as an id
    reverse: Reverse | None = None  # undoes an approved call; changes of records need none
    keeps_changes: bool = False  # its changes can be undone as those of records

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
    asks: str | None = None,
    risk: RiskTier | None = None,
    on_refused: OnRefused | None = None,
    unique: tuple[str, ...] = (),
    reverse: Reverse | None = None,
    keeps_changes: bool = False,
    shared: bool = False,
) -> Callable[[F], F]:
    """Declare a function as a tool. It stays an ordinary function with the attribute ``__tool__``.

    Other butlers may ask a shared tool through the Switchboard. It must be read-only.
    """
    if shared and (effect not in (Effect.READ, Effect.LOOK) or outside):
        raise TypeError("only a tool that reads the butler's own data can be shared")

    def declare(function: F) -> F:
        chosen = name or function.__name__
        spec = ToolSpec(
            chosen,
            function,
            callers,
            effect,
            (*aliases, f"{SHARED_PREFIX}{chosen}") if shared else aliases,
            on_invalid,
            outside=outside,
            asks=asks,
            risk=risk,
            on_refused=on_refused,
            unique=unique,
            reverse=reverse,
            keeps_changes=keeps_changes,
        )
        function.__tool__ = spec  # type: ignore[attr-defined]
        return function

    return declare


def spec_of(function: ToolFunction) -> ToolSpec:
    spec = getattr(function, "__tool__", None)
    if not isinstance(spec, ToolSpec):
        raise TypeError(f"{function!r} is not declared with @tool")
    return spec
