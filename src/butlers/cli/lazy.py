"""A group of commands that imports the file of a command when the command is used.

``butlers --help`` shows the summaries of the table and imports no command; other command
lines import one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The place of a command or of a family of commands, and its line in the list of commands."""

    place: str  # "file:name" in the package of the command line
    summary: str

    def load(self, name: str) -> Any:
        """Import the file and return the command."""
        file, _, attribute = self.place.partition(":")
        found = getattr(import_module(f"butlers.cli.{file}"), attribute)
        if isinstance(found, typer.Typer):
            family = typer.main.get_group(found)
            family.name = name
            return family
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(name=name)(found)
        return typer.main.get_command(alone)


class _LoadedCommands(MutableMapping[str, Any]):
    """The commands of a table, each loaded when it is first read."""

    def __init__(self, table: Mapping[str, LazyCommand]) -> None:
        self._table = table
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._table[name].load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def lazy_group(table: Mapping[str, LazyCommand]) -> type[TyperGroup]:
    """Return the class of a group with the commands of the table."""

    class LazyGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options | {"commands": cast(Any, _LoadedCommands(table))})

        def format_help(self, ctx: Any, formatter: Any) -> None:
            """List the commands by their summaries, without loading them."""
            listing = copy(self)
            listing.commands = {
                name: TyperCommand(name, help=command.summary) for name, command in table.items()
            }
            super(LazyGroup, listing).format_help(ctx, formatter)

    return LazyGroup
