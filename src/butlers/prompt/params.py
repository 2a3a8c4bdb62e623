"""Params: dataclasses bound to a prompt and passed to sections by type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from string import Template
from textwrap import dedent
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, get_args

from butlers.domain.errors import PromptValidationError


class Parametrized(Protocol):
    @property
    def params_type(self) -> type | None: ...
    @property
    def default_params(self) -> Any: ...


class Params:
    """Params of one prompt by type."""

    def __init__(self, bound: Mapping[type, Any] | None = None) -> None:
        self.bound: Mapping[type, Any] = MappingProxyType(dict(bound or {}))

    def with_more(self, more: Iterable[Any]) -> Params:
        """Return a copy with more params; of each type the last one counts."""
        found = dict(self.bound)
        for one in more:
            if not is_dataclass(one) or isinstance(one, type):
                raise PromptValidationError(
                    f"params must be instances of a dataclass, not {type(one).__name__}",
                    hint="bind(MyParams(…))",
                )
            found[type(one)] = one
        return Params(found)

    def of(self, section: Parametrized, claimed_types: frozenset[type]) -> Any:
        """Return the section's params. A section without a type gets params that no other claims."""
        wanted = section.params_type
        if wanted is None:
            return self._unclaimed(section, claimed_types)
        if wanted in self.bound:
            return self.bound[wanted]
        if section.default_params is not None:
            return section.default_params
        try:
            return wanted()
        except TypeError as error:
            raise PromptValidationError(
                f"a section needs {wanted.__name__}, which is not bound",
                hint=f"bind({wanted.__name__}(…)), or give the section default_params",
            ) from error

    def _unclaimed(self, section: Parametrized, claimed_types: frozenset[type]) -> Any:
        free = [one for kind, one in self.bound.items() if kind not in claimed_types]
        if len(free) > 1:
            names = ", ".join(sorted(type(one).__name__ for one in free))
            raise PromptValidationError(
                f"a section without a params type could take any of {names}",
                hint="name the type: Skill[MyParams](…)",
            )
        return free[0] if free else section.default_params


def generic_arguments(instance: Any) -> tuple[Any, ...]:
    """Return the types in ``Skill[MyParams](…)`` or ``class MySkill(Skill[MyParams])``, or ()."""
    if written := get_args(getattr(instance, "__orig_class__", None)):
        return written
    bases = (
        base for kind in type(instance).__mro__ for base in kind.__dict__.get("__orig_bases__", ())
    )
    return next((found for base in bases if _named(found := get_args(base))), ())


def _named(types: tuple[Any, ...]) -> bool:
    return bool(types) and not any(isinstance(one, TypeVar) for one in types)


def tidy(template: str) -> str:
    return dedent(template).strip()


def fill(template: str, params: Any) -> str:
    """Fill a ``string.Template``; unknown placeholders stay unchanged."""
    if params is None or not is_dataclass(params):
        return Template(template).safe_substitute()
    values = {one.name: getattr(params, one.name) for one in fields(params)}
    return Template(template).safe_substitute(values)
