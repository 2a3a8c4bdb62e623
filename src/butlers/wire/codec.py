"""Strict conversion of domain types to JSON and back, for calls and JSONB columns."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from butlers.domain.errors import InvalidArguments

T = TypeVar("T")


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def encode(value: Any) -> Any:
    return _adapter(type(value)).dump_python(value, mode="json")


def decode(kind: type[T], data: Any) -> T:
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
