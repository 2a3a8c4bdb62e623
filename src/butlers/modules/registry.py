"""Finds module classes. Roster modules are found by path: ``<butler's folder>/modules/__init__.py``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from butlers.config.butler import ButlerConfig
from butlers.domain.errors import ConfigInvalid
from butlers.modules.base import Module


def load_modules(config: ButlerConfig) -> tuple[Module, ...]:
    """The modules a configuration names, in its order."""
    found = _register_roster_modules(config.directory, config.name)
    return tuple(_make(name, found, config) for name in config.modules)


def _make(name: str, found: dict[str, type[Module]], config: ButlerConfig) -> Module:
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigInvalid(
            f"there is no module {name!r}",
            path=config.directory / "butler.toml",
            key=f"modules.{name}",
            hint=f"modules of this butler: {known}",
        )
    return found[name]()


def _register_roster_modules(directory: Path, butler: str) -> dict[str, type[Module]]:
    """Import the butler's own module package under a private name, with its folder beside it.

    ``tools/`` becomes ``<package>.tools``, so that a roster module imports its tool functions relatively
    and two butlers with a ``tools`` folder do not meet in ``sys.modules``.
    """
    if not (directory / "modules" / "__init__.py").is_file():
        return {}
    package = f"butlers_roster_{butler.replace('-', '_')}"
    _package(package, directory)
    module = _import(f"{package}.modules", directory / "modules" / "__init__.py")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Module) and value is not Module
    ]
    return {made.name: kind for kind in classes if (made := kind())}


def _package(name: str, directory: Path) -> None:
    package = ModuleType(name)
    package.__path__ = [str(directory)]
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    sys.modules[name] = package


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)]
    )
    if spec is None or spec.loader is None:
        raise ConfigInvalid(f"{path} can not be imported", path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # anything a stranger's file may raise while it is imported
        raise ConfigInvalid(f"the module can not be imported: {error!r}", path=path) from error
    return module
