"""A TOML file a person wrote: read, with ${VAR} filled in, and able to say what is wrong where."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from butlers.config.locate import locate
from butlers.config.problems import Problem, problems_of
from butlers.config.variables import Resolver
from butlers.domain.errors import (
    ConfigError,
    ConfigInvalid,
    ConfigMissing,
    ConfigSyntaxError,
    UnresolvedVariables,
)

_Model = TypeVar("_Model", bound=BaseModel)
_ConfigError = TypeVar("_ConfigError", bound=ConfigError)

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SYNTAX_HINT = (
    'texts stand in quotes (name = "health"), tables in [brackets], '
    "lists of tables in [[double brackets]]"
)
# Dotted keys nest without limit; whoever walks the tree by recursion must be safe from that.
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Document:
    path: Path
    text: str
    data: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path, environ: Mapping[str, str], *, missing_hint: str) -> Document:
        text = _decode(path, _read(path, missing_hint))
        raw = cls(path, text, _parse(path, text))
        return cls(path, text, raw._resolved(environ))

    def validate(self, model: type[_Model], **context: object) -> _Model:
        try:
            return model.model_validate(self.data, context=context)
        except ValidationError as error:
            raise self.invalid(problems_of(error, model)) from None

    def invalid(self, problems: Iterable[Problem]) -> ConfigInvalid:
        return self._error(ConfigInvalid, problems)

    def _resolved(self, environ: Mapping[str, str]) -> Mapping[str, Any]:
        if deep := _too_deep(self.data):
            raise self.invalid([deep])
        resolver = Resolver(environ)
        data = {key: resolver.resolve(value, (key,)) for key, value in self.data.items()}
        if resolver.problems:
            hint = "; ".join(dict.fromkeys(p.hint for p in resolver.problems if p.hint))
            raise self._error(UnresolvedVariables, resolver.problems, hint)
        return data

    def _error(
        self, kind: type[_ConfigError], problems: Iterable[Problem], hint: str | None = None
    ) -> _ConfigError:
        """One error for all problems, each on its own line in the form editors can jump to."""
        places = locate(self.text)
        placed = sorted(
            ((places.line(problem.path), problem) for problem in problems),
            key=lambda pair: pair[0] or 0,
        )
        line, first = placed[0]
        rest = [f"{_place(self.path, at)}: {problem.message}" for at, problem in placed[1:]]
        return kind(
            "\n".join([first.message, *rest]),
            path=self.path,
            key=first.key,
            line=line,
            hint=hint or first.hint,
        )


def _place(path: Path, line: int | None) -> str:
    return f"{path}:{line}" if line else str(path)


def _read(path: Path, missing_hint: str) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "there is no such file" if path.parent.is_dir() else "there is no such folder"
        raise ConfigMissing(what, path=path, hint=missing_hint) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigInvalid(
            f"it can not be read: {reason}", path=path, hint="check its permissions"
        ) from error


def _decode(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")  # some editors put a byte order mark in front
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


def _syntax_error(path: Path, text: str, said: str) -> ConfigSyntaxError:
    place = _TOML_PLACE.search(said)
    what = said[: place.start()] if place else said
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
