"""${VAR} in the texts of a document, filled in from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from butlers.config.locate import KeyPath, dotted
from butlers.config.problems import Problem

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Resolver:
    """Fills in what it can and remembers the rest, so that all of it is reported at once.

    A value that comes from the environment is not looked into again: what somebody else's secret
    happens to contain must not name further variables.
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
        if name is None:  # $${ is how a literal ${ is written
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
