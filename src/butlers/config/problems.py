"""What pydantic found wrong, said in the words of the person who wrote the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import isclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from butlers.config.locate import KeyPath, dotted

_TABLE = "must be a table"
_WORDS = {
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "dict_type": _TABLE,
    "mapping_type": _TABLE,
    "tuple_type": "must be an array",
}


@dataclass(frozen=True, slots=True)
class Problem:
    path: KeyPath
    message: str
    hint: str | None = None

    @property
    def key(self) -> str:
        return dotted(self.path)


def refuse(message: str, *, at: KeyPath = (), hint: str | None = None) -> PydanticCustomError:
    """For a validator to raise. ``at`` leads from the value it looks at to the key to blame."""
    # The text travels as a value: pydantic would take its braces for placeholders.
    return PydanticCustomError("refused", "{text}", {"text": message, "at": at, "hint": hint})


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    known = tuple(_known_keys(model))
    return [_problem(detail, known) for detail in error.errors(include_url=False)]


def _problem(detail: ErrorDetails, known: tuple[KeyPath, ...]) -> Problem:
    path: KeyPath = detail["loc"]
    match detail["type"]:
        case "missing":
            return _missing(path)
        case "extra_forbidden":
            return _unknown(path, known)
        case "refused":
            context = detail["ctx"]
            path = (*path, *context["at"])
            return Problem(path, f"{dotted(path)}: {context['text']}", context["hint"])
        case kind:
            said = _WORDS.get(kind) or detail["msg"].replace("Input should be", "must be")
            return Problem(path, f"{dotted(path)}: {said}")


def _missing(path: KeyPath) -> Problem:
    table, leaf = dotted(path[:-1]), path[-1]
    hint = f"add `{leaf} = ...` to [{table}]" if table else f"add `{leaf} = ...`"
    return Problem(path, f"{dotted(path)}: {leaf} is required", hint)


def _unknown(path: KeyPath, known: tuple[KeyPath, ...]) -> Problem:
    table, leaf = tuple(key for key in path[:-1] if isinstance(key, str)), str(path[-1])
    siblings = [str(key[-1]) for key in known if key[:-1] == table]
    near = _nearest(leaf, siblings, [key for key in known if key[-1] == leaf])
    asked = f"; did you mean '{near}'?" if near else ""
    where = f"[{dotted(table)}]" if table else "the file"
    return Problem(
        path, f"unknown key '{dotted(path)}'{asked}", f"{where} may have: {', '.join(siblings)}"
    )


def _nearest(leaf: str, siblings: list[str], elsewhere: list[KeyPath]) -> str | None:
    # The right key in the wrong table is a surer guess than a key that merely looks similar.
    if len(elsewhere) == 1:
        return dotted(elsewhere[0])
    return next(iter(get_close_matches(leaf, siblings, n=1)), None)


def _known_keys(model: type[BaseModel], table: KeyPath = ()) -> Iterator[KeyPath]:
    for name, field in model.model_fields.items():
        path = (*table, field.alias or name)
        yield path
        if inner := _inner_model(field.annotation):
            yield from _known_keys(inner, path)


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """The model in `Model`, `Model | None` or `tuple[Model, ...]`."""
    if isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner_model(part))), None)
