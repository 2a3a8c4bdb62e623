"""Find a butler's modules, sort them, and find their migrations.

A butler's own modules are found by path, in ``<folder>/modules``: classes of the package itself, and of
packages inside it (``modules/<name>/``), which are imported only if the configuration names them. Shared
modules are the packages beside this file. A butler's own module overrides a shared one of the same name.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

import structlog

from butlers.config.butler import ButlerConfig
from butlers.config.document import Problem
from butlers.db.migrations import CORE, Chain, find_chain
from butlers.domain.errors import ConfigInvalid, MigrationFailed
from butlers.modules.base import Module, UnloadableModule

log = structlog.get_logger()

SHARED = Path(__file__).parent
PACKAGE = __name__.rpartition(".")[0]


def load_modules(config: ButlerConfig, *, shared: Path = SHARED) -> tuple[Module, ...]:
    """Load the modules that a configuration names, dependencies first.

    Raises ConfigInvalid for an unknown name or an invalid graph. Code that cannot be loaded fails that
    module alone.
    """
    own = _OwnModules(config.directory, config.name)
    return sort_modules([_find(name, own, config, shared) for name in config.modules], config)


def load_module(folder: Path, name: str, butler: str = "tester") -> Module:
    """Load one module of a butler's folder, for its tests."""
    own = _OwnModules(folder, butler)
    found = own.find(name)
    if isinstance(found, UnloadableModule):
        raise found.error
    if found is None:
        raise own.error or ConfigInvalid(
            f"unknown module {name!r}{suggestion(name, own.names())}", path=folder / "modules"
        )
    return found


def sort_modules(modules: Sequence[Module], config: ButlerConfig) -> tuple[Module, ...]:
    """Sort modules: dependencies first, otherwise in the order of the configuration."""
    by_name = {module.name: module for module in modules}
    done: dict[str, Module] = {}

    def place(module: Module, above: tuple[str, ...]) -> None:
        if module.name in done:
            return
        if module.name in above:
            cycle = (*above[above.index(module.name) :], module.name)
            raise _config_error(config, module.name, f"circular dependency: {' → '.join(cycle)}")
        for needed in module.dependencies:
            if needed not in by_name:
                raise _config_error(
                    config,
                    module.name,
                    f"the {module.name} module requires {needed}",
                    f"add [modules.{needed}]{suggestion(needed, by_name)}",
                )
            place(by_name[needed], (*above, module.name))
        done[module.name] = module

    for module in modules:
        place(module, ())
    return tuple(done.values())


def _find(name: str, own: _OwnModules, config: ButlerConfig, shared: Path) -> Module:
    is_shared = name in _packages(shared)
    if (found := own.find(name)) is not None:
        if is_shared:
            log.warning("module overridden", module=name, by=str(config.directory))
        return found
    if is_shared:
        return _load(name, f"{PACKAGE}.{name}", shared / name)
    if own.error is not None:  # the broken package may define this module
        return UnloadableModule(name, own.error)
    known = sorted({*own.names(), *_packages(shared)})
    raise _config_error(
        config,
        name,
        f"unknown module {name!r}{suggestion(name, known)}",
        f"available modules: {', '.join(known) or 'none'}",
    )


class _OwnModules:
    """Modules in a butler's own folder."""

    def __init__(self, directory: Path, butler: str) -> None:
        self._folder = directory / "modules"
        self._package = f"{_roster_package(butler)}.modules"
        self._kinds: dict[str, type[Module]] = {}
        self.error: Exception | None = None
        try:
            self._kinds = _register_roster_modules(directory, butler)
        except Exception as error:  # noqa: BLE001  (user code; the error becomes a module failure)
            self.error = error

    def find(self, name: str) -> Module | None:
        if name in self._kinds:
            return self._kinds[name]()
        if name in _packages(self._folder):
            return _load(name, f"{self._package}.{name}", self._folder / name)
        return None

    def names(self) -> list[str]:
        return [*self._kinds, *_packages(self._folder)]


def _register_roster_modules(directory: Path, butler: str) -> dict[str, type[Module]]:
    """Import the butler's own module package under a private package name.

    ``tools/`` becomes ``<package>.tools``, so that a roster module imports its tool functions relatively
    and the ``tools`` folders of two butlers do not collide in ``sys.modules``.
    """
    package, folder = _roster_package(butler), directory / "modules"
    _create_package(package, directory)
    if not (folder / "__init__.py").is_file():
        _create_package(f"{package}.modules", folder)
        return {}
    return _module_classes(_import(f"{package}.modules", folder))


def _load(name: str, package: str, folder: Path) -> Module:
    """Load the module from its own package."""
    try:
        kinds = _module_classes(_import(package, folder))
        if name not in kinds:
            listed = ", ".join(kinds) or "no module"
            raise ConfigInvalid(f"it defines {listed}, not {name!r}", path=folder / "__init__.py")
        return kinds[name]()
    except Exception as error:  # noqa: BLE001  (user code; the error becomes a module failure)
        return UnloadableModule(name, error)


def _module_classes(package: ModuleType) -> dict[str, type[Module]]:
    """Return the module classes defined in a package or below it, not those it imports."""
    found: dict[str, type[Module]] = {}
    for value in vars(package).values():
        if (
            isinstance(value, type)
            and issubclass(value, Module)
            and f"{value.__module__}.".startswith(f"{package.__name__}.")
            and not getattr(value, "__abstractmethods__", None)
            and found.setdefault(name := value().name, value) is not value
        ):
            raise ConfigInvalid(f"{package.__name__} has two modules named {name!r}")
    return found


def _roster_package(butler: str) -> str:
    return f"butlers_roster_{butler.replace('-', '_')}"


def _create_package(name: str, directory: Path) -> None:
    package = ModuleType(name)
    package.__path__ = [str(directory)]
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    sys.modules[name] = package


def _import(name: str, folder: Path) -> ModuleType:
    if name in sys.modules:  # already imported by another module
        return sys.modules[name]
    path = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ConfigInvalid(f"{path} cannot be imported", path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # user code may raise anything
        del sys.modules[name]
        raise ConfigInvalid(f"the module cannot be imported: {error!r}", path=path) from error
    return module


def _packages(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/__init__.py"))


def suggestion(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _config_error(
    config: ButlerConfig, module: str, message: str, hint: str | None = None
) -> ConfigInvalid:
    """Return an error that points at the module's section in butler.toml."""
    return config.document().invalid([Problem(("modules", module), message, hint)])


LABEL = re.compile(r"[a-z][a-z0-9_]{0,39}")  # becomes part of the version table's name

RESERVED = (CORE, "shared")


class ModuleChains:
    """Migration chains of one butler's modules. Each label has one folder, each folder one label."""

    def __init__(self, butler: str, versions: Path) -> None:
        self._versions = versions
        self._folders = {name: versions / name for name in (*RESERVED, butler.replace("-", "_"))}

    def of(self, module: Module) -> Chain | None:
        label = module.migration_revisions()
        if label is None:
            return None
        if not LABEL.fullmatch(label):
            raise MigrationFailed(
                f"{label!r} is not a valid migration label: use lower-case letters, digits and '_'"
            )
        folder = module.migration_directory()
        chain = Chain(label, folder) if folder else find_chain(label, self._versions)
        if chain is None:
            raise MigrationFailed(
                f"the migration chain {label!r} has no folder",
                hint="put its revisions into migrations/ beside the module's code",
            )
        self._claim(chain)
        return chain

    def _claim(self, chain: Chain) -> None:
        taken = self._folders.get(chain.name, chain.directory)
        if taken != chain.directory and (taken.is_dir() or chain.name in RESERVED):
            raise MigrationFailed(
                f"the migration chain {chain.name!r} is in {taken} and also in {chain.directory}",
                hint="return another label from migration_revisions()",
            )
        for label, folder in self._folders.items():
            if folder == chain.directory and label != chain.name:
                raise MigrationFailed(
                    f"the migrations in {folder} have two labels: {label!r} and {chain.name!r}",
                    hint="return the same label from migration_revisions() of both modules",
                )
        self._folders[chain.name] = chain.directory
