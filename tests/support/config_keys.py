"""The keys of a configuration model, those of nested tables included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from butlers.config.locate import KeyPath


def keys(model: type[BaseModel], table: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Yield path and field of every key, those of nested tables included."""
    for name, field in model.model_fields.items():
        path = (*table, field.alias or name)
        inner = inner_model(field.annotation)
        if inner is None:
            yield path, field
        else:
            many = get_origin(field.annotation) is tuple
            yield from keys(inner, (*path, 0) if many else path)


def inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := inner_model(one))), None)
