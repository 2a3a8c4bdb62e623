"""A dict nobody can change. It stays a dict, so json and pydantic take it as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


class FrozenDict(dict[str, Any]):
    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("configuration is read-only")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        # The inherited way fills an empty dict item by item, which this class refuses.
        return FrozenDict, (dict(self),)


def freeze(value: Any) -> Any:
    """The same value with every table and array in it made immutable."""
    if isinstance(value, Mapping):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value
