"""Where a module's migrations are, and that no two chains get in each other's way."""

from __future__ import annotations

import re
from pathlib import Path

from butlers.db.migrations import CORE, Chain, find_chain
from butlers.domain.errors import MigrationFailed
from butlers.modules.base import Module

LABEL = re.compile(r"[a-z][a-z0-9_]{0,39}")  # it becomes part of the version table's name

RESERVED = (CORE, "shared")


class ModuleChains:
    """The chains of one butler's modules. A label has one folder, and a folder one label."""

    def __init__(self, butler: str, versions: Path) -> None:
        self._versions = versions
        self._folders = {name: versions / name for name in (*RESERVED, butler.replace("-", "_"))}

    def of(self, module: Module) -> Chain | None:
        label = module.migration_revisions()
        if label is None:
            return None
        if not LABEL.fullmatch(label):
            raise MigrationFailed(
                f"{label!r} is not a label for migrations: lower-case letters, digits and '_'"
            )
        folder = module.migration_directory()
        chain = Chain(label, folder) if folder else find_chain(label, self._versions)
        if chain is None:
            raise MigrationFailed(
                f"the migration chain {label!r} has no folder",
                hint="put its revisions into a folder migrations/ beside the module's code",
            )
        self._claim(chain)
        return chain

    def _claim(self, chain: Chain) -> None:
        taken = self._folders.get(chain.name, chain.directory)
        if taken != chain.directory and (taken.is_dir() or chain.name in RESERVED):
            raise MigrationFailed(
                f"the migration chain {chain.name!r} is already in {taken}, and also in"
                f" {chain.directory}",
                hint="let migration_revisions() return another label",
            )
        for label, folder in self._folders.items():
            if folder == chain.directory and label != chain.name:
                raise MigrationFailed(
                    f"the migrations in {folder} have two labels: {label!r} and {chain.name!r}",
                    hint="let both modules return the same label from migration_revisions()",
                )
        self._folders[chain.name] = chain.directory
