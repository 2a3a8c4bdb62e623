"""Strict conversion of domain types to JSON and back, for calls and JSONB columns.

Pydantic is imported when it is first used: commands send domain types and import none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from butlers.domain.errors import InvalidArguments

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _adapters:
        from pydantic import TypeAdapter

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def encode(value: Any) -> Any:
    return _adapter(type(value)).dump_python(value, mode="json")


def encode_plain(value: Any) -> Any:
    """Encode as ``encode`` does, without pydantic. For a command: importing it takes longer than a call."""
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return value
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Mapping():
            return {key: encode_plain(one) for key, one in value.items()}
        case list() | tuple():
            return [encode_plain(one) for one in value]
    if is_dataclass(value):
        return {one.name: encode_plain(getattr(value, one.name)) for one in fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form here")


def decode(kind: type[T], data: Any) -> T:
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        raise InvalidArguments(describe(error)) from None


def describe(error: ValidationError) -> str:
    """Describe validation errors in one line, without the values."""
    return "; ".join(
        f"{'.'.join(str(part) for part in found['loc']) or 'value'}: {found['msg']}"
        for found in error.errors(include_url=False, include_input=False)
    )
