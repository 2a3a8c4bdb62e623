"""A TOML file that a person wrote: read it, fill in ${VAR}, and report problems with their lines.

A second file may be merged over it: tables merge, arrays of tables merge by their ``name``, everything else
is replaced. A problem is reported in the file that it comes from.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from inspect import isclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from butlers.config.locate import KeyPath, dotted, locate
from butlers.domain.errors import (
    ConfigError,
    ConfigInvalid,
    ConfigMissing,
    ConfigSyntaxError,
    UnresolvedVariables,
)

_TABLE = "must be a table"
_MESSAGES = {
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
    """Return the error for a validator to raise. ``at`` is the path from its value to the wrong key."""
    # The text is passed as a value: pydantic would take its braces for placeholders.
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
            message = _MESSAGES.get(kind) or detail["msg"].replace("Input should be", "must be")
            return Problem(path, f"{dotted(path)}: {message}")


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
    # The right key in the wrong table is a better guess than a similar key.
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


# -- variables -----------------------------------------------------------------------------------


_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Resolver:
    """Fills in ${VAR} and collects the problems, so that all of them are reported at once.

    A value from the environment is not resolved again: the content of a secret must not name further
    variables.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[Problem] = []

    def resolve(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda found: self._fill(found, path), value)
        if isinstance(value, dict):
            return {key: self.resolve(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, (*path, index)) for index, item in enumerate(value)]
        return value

    def _fill(self, found: re.Match[str], path: KeyPath) -> str:
        name: str | None = found[1]
        if name is None:  # $${ stands for a literal ${
            return "${"
        if not _NAME.fullmatch(name):
            self.problems.append(_not_a_name(name, path))
        elif not self._environ.get(name):
            self.problems.append(self._unset(name, path))
        return self._environ.get(name, "")

    def _unset(self, name: str, path: KeyPath) -> Problem:
        near = get_close_matches(name, (key for key in self._environ if key != name), n=1)
        hint = f"set {name}" + (f" (or did you mean {near[0]}, which is set?)" if near else "")
        return Problem(path, f"{dotted(path)}: ${{{name}}} is not set", hint)


def _not_a_name(name: str, path: KeyPath) -> Problem:
    return Problem(
        path,
        f"{dotted(path)}: ${{{name}}} is not the name of a variable",
        "only ${NAME} is resolved; write $${ for a literal ${",
    )


# -- the file ------------------------------------------------------------------------------------


_Model = TypeVar("_Model", bound=BaseModel)
_ConfigError = TypeVar("_ConfigError", bound=ConfigError)

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SYNTAX_HINT = (
    'put texts in quotes (name = "health"), tables in [brackets], '
    "lists of tables in [[double brackets]]"
)
# Dotted keys nest without limit, and the tree is walked by recursion.
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Overlay:
    """The second file, and the path in it of each key that it sets in the merged data."""

    path: Path
    text: str
    merged: Mapping[str, Any]
    own_paths: Mapping[KeyPath, KeyPath]


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A file, and the path of a key in it."""

    path: Path
    text: str
    key: KeyPath
    overlaid: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    path: Path
    text: str
    data: Mapping[str, Any]
    overlay: Overlay | None = None

    @classmethod
    def read(
        cls,
        path: Path,
        environ: Mapping[str, str],
        *,
        missing_hint: str = "",
        override: Path | None = None,
    ) -> Document:
        """Read the file, with the override merged over it if there is one, and fill in the variables."""
        raw = cls.read_raw(path, missing_hint=missing_hint, override=override)
        return replace(raw, data=raw._resolved(environ))

    @classmethod
    def read_raw(
        cls, path: Path, *, missing_hint: str = "", override: Path | None = None
    ) -> Document:
        """Read the file without filling in the variables."""
        text = _decode(path, _read(path, missing_hint))
        document = cls(path, text, _parse(path, text))
        if deep := _too_deep(document.data):
            raise document.invalid([deep])
        if override is None:
            return document
        over = cls.read_raw(override)
        own_paths: dict[KeyPath, KeyPath] = {}
        merged = _merged(document.data, over.data, (), (), own_paths)
        overlay = Overlay(override, over.text, merged, own_paths)
        return replace(document, data=merged, overlay=overlay)

    @classmethod
    def around(cls, path: Path, override: Path | None, data: Mapping[str, Any]) -> Document:
        """Return the file with data of a part of it that was read before, for the lines of its problems."""
        try:
            return replace(cls.read_raw(path, override=override), data=data)
        except ConfigError:  # changed since; the problem is still reported, without its line
            return cls(path, "", data)

    def validate(self, model: type[_Model], **context: object) -> _Model:
        try:
            return model.model_validate(self.data, context=context)
        except ValidationError as error:
            raise self.invalid(problems_of(error, model)) from None

    def invalid(self, problems: Iterable[Problem]) -> ConfigInvalid:
        return self._error(ConfigInvalid, problems)

    def source(self, path: KeyPath) -> ConfigSource:
        """Return the file that sets the key, or else the nearest table around it."""
        if self.overlay is None:
            return ConfigSource(self.path, self.text, path)
        for length in range(len(path), -1, -1):
            start, rest = path[:length], path[length:]
            if start in self.overlay.own_paths:
                own = (*self.overlay.own_paths[start], *rest)
                return ConfigSource(self.overlay.path, self.overlay.text, own, overlaid=True)
            if has_key(self.overlay.merged, start):
                break
        return ConfigSource(self.path, self.text, path)

    def _resolved(self, environ: Mapping[str, str]) -> Mapping[str, Any]:
        resolver = Resolver(environ)
        data = {key: resolver.resolve(value, (key,)) for key, value in self.data.items()}
        if resolver.problems:
            hint = "; ".join(dict.fromkeys(p.hint for p in resolver.problems if p.hint))
            raise self._error(UnresolvedVariables, resolver.problems, hint)
        return data

    def _error(
        self, kind: type[_ConfigError], problems: Iterable[Problem], hint: str | None = None
    ) -> _ConfigError:
        """Return one error for all problems, each on its own line in the form that editors can jump to."""
        placed = sorted(
            (self._placed(problem) for problem in problems),
            key=lambda one: (not one.source.overlaid, one.line or 0),
        )
        first = placed[0]
        rest = [f"{_place(one.source.path, one.line)}: {one.message}" for one in placed[1:]]
        hint = hint or first.problem.hint
        if self.overlay is not None and not first.source.overlaid:
            merged = f"{self.overlay.path} is merged over this file"
            hint = f"{hint}; {merged}" if hint else merged
        return kind(
            "\n".join([first.message, *rest]),
            path=first.source.path,
            key=dotted(first.source.key),
            line=first.line,
            hint=hint,
        )

    def _placed(self, problem: Problem) -> _Placed:
        source = self.source(problem.path)
        # In its own file an entry of an array may have another number than in the merged data.
        message = problem.message.replace(problem.key, dotted(source.key))
        return _Placed(problem, source, locate(source.text).line(source.key), message)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A problem, the file it is in, and its line and message there."""

    problem: Problem
    source: ConfigSource
    line: int | None
    message: str


def has_key(data: Any, path: KeyPath) -> bool:
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _merged(
    base: Any, over: Any, at: KeyPath, own: KeyPath, own_paths: dict[KeyPath, KeyPath]
) -> Any:
    """Return the value with ``over`` merged over it, and record the path in its file of each key it sets."""
    own_paths[at] = own
    if isinstance(over, dict):
        before = base if isinstance(base, dict) else {}
        return before | {
            key: _merged(before.get(key), value, (*at, key), (*own, key), own_paths)
            for key, value in over.items()
        }
    if isinstance(over, list):
        items = list(base) if _merge_by_name(base, over) else []
        numbers = {item["name"]: number for number, item in enumerate(items)}
        for position, value in enumerate(over):
            name = value.get("name") if isinstance(value, dict) else None
            # Taken once: a second entry of the same name stays an entry, and is an error.
            number = numbers.pop(name, None) if isinstance(name, str) else None
            if number is None:
                number = len(items)
                items.append(None)
            here, there = (*at, number), (*own, position)
            items[number] = _merged(items[number], value, here, there, own_paths)
        return items
    return over


def _merge_by_name(base: Any, over: list[Any]) -> bool:
    if not isinstance(base, list) or not over or not all(isinstance(one, dict) for one in over):
        return False
    return all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in base)


def _place(path: Path, line: int | None) -> str:
    return f"{path}:{line}" if line else str(path)


def _read(path: Path, missing_hint: str) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "the file does not exist" if path.parent.is_dir() else "the folder does not exist"
        raise ConfigMissing(what, path=path, hint=missing_hint) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigInvalid(
            f"it cannot be read: {reason}", path=path, hint="check its permissions"
        ) from error


def _decode(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        raise ConfigSyntaxError(
            f"column {column}: expected UTF-8 text, found byte 0x{raw[error.start]:02x}",
            path=path,
            line=before.count(b"\n") + 1,
            hint="save the file as UTF-8",
        ) from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigSyntaxError(
            "arrays or tables are nested too deeply", path=path, hint=_SYNTAX_HINT
        ) from error
    # Not only TOMLDecodeError: an integer of five thousand digits is a plain ValueError.
    except ValueError as error:
        raise _syntax_error(path, text, str(error)) from error


def _syntax_error(path: Path, text: str, message: str) -> ConfigSyntaxError:
    place = _TOML_PLACE.search(message)
    what = message[: place.start()] if place else message
    if place is None:
        return ConfigSyntaxError(what, path=path, hint=_SYNTAX_HINT)
    if place[1] is None:
        last = text.rstrip("\n").rpartition("\n")[2]
        line, column = text.rstrip("\n").count("\n") + 1, len(last) + 1
        what = f"{what}, but the file ends"
    else:
        line, column = int(place[1]), int(place[2])
    return ConfigSyntaxError(f"column {column}: {what}", path=path, line=line, hint=_SYNTAX_HINT)


def _too_deep(data: Mapping[str, Any]) -> Problem | None:
    level: list[tuple[str, Any]] = list(data.items())
    for _ in range(_MAX_DEPTH):
        level = [(root, child) for root, value in level for child in _children(value)]
        if not level:
            return None
    return Problem((level[0][0],), f"{level[0][0]}: more than {_MAX_DEPTH} levels of nesting")


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
