"""Finds a butler's modules and puts them in order.

A butler's own are found by path, in ``<folder>/modules``: classes of the package itself, and of the packages
inside it (``modules/<name>/``), which are imported only when the configuration names them. Shared ones are
the packages beside this file. Where both have a name, the butler's own is meant.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

import structlog

from butlers.config.butler import ButlerConfig
from butlers.config.document import Document
from butlers.config.problems import Problem
from butlers.domain.errors import ConfigInvalid
from butlers.modules.base import Module, Unloadable

log = structlog.get_logger()

SHARED = Path(__file__).parent
PACKAGE = __name__.rpartition(".")[0]


def load_modules(config: ButlerConfig, *, shared: Path = SHARED) -> tuple[Module, ...]:
    """The modules a configuration names, each after those it depends on.

    A name that nobody has and a wrong graph are errors of the configuration. Code that can not be loaded is
    a failure of that module alone.
    """
    own = _Own(config.directory, config.name)
    return sort_modules([_find(name, own, config, shared) for name in config.modules], config)


def load_module(folder: Path, name: str, butler: str = "tester") -> Module:
    """One module of a butler's folder, for its own tests."""
    own = _Own(folder, butler)
    found = own.find(name)
    if isinstance(found, Unloadable):
        raise found.error
    if found is None:
        raise own.error or ConfigInvalid(
            f"there is no module {name!r}{_meant(name, own.names())}", path=folder / "modules"
        )
    return found


def sort_modules(modules: Sequence[Module], config: ButlerConfig) -> tuple[Module, ...]:
    """Dependencies first; otherwise in the order of the configuration."""
    by_name = {module.name: module for module in modules}
    done: dict[str, Module] = {}

    def place(module: Module, above: tuple[str, ...]) -> None:
        if module.name in done:
            return
        if module.name in above:
            cycle = (*above[above.index(module.name) :], module.name)
            raise _wrong(config, module.name, f"circular dependency: {' → '.join(cycle)}")
        for needed in module.dependencies:
            if needed not in by_name:
                raise _wrong(
                    config,
                    module.name,
                    f"the {module.name} module requires {needed}",
                    f"add [modules.{needed}]{_meant(needed, by_name)}",
                )
            place(by_name[needed], (*above, module.name))
        done[module.name] = module

    for module in modules:
        place(module, ())
    return tuple(done.values())


def _find(name: str, own: _Own, config: ButlerConfig, shared: Path) -> Module:
    is_shared = name in _packages(shared)
    if (found := own.find(name)) is not None:
        if is_shared:
            log.warning("module overridden", module=name, by=str(config.directory))
        return found
    if is_shared:
        return _load(name, f"{PACKAGE}.{name}", shared / name)
    if own.error is not None:  # whatever it would have defined, this may have been among it
        return Unloadable(name, own.error)
    known = sorted({*own.names(), *_packages(shared)})
    raise _wrong(
        config,
        name,
        f"there is no module {name!r}{_meant(name, known)}",
        f"modules it may have: {', '.join(known) or 'none'}",
    )


class _Own:
    """The modules in a butler's own folder."""

    def __init__(self, directory: Path, butler: str) -> None:
        self._folder = directory / "modules"
        self._package = f"{_roster_package(butler)}.modules"
        self._kinds: dict[str, type[Module]] = {}
        self.error: Exception | None = None
        try:
            self._kinds = _register_roster_modules(directory, butler)
        except Exception as error:  # noqa: BLE001  (a stranger's code; it fails as its modules do)
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
    """Import the butler's own module package under a private name, with its folder beside it.

    ``tools/`` becomes ``<package>.tools``, so that a roster module imports its tool functions relatively
    and two butlers with a ``tools`` folder do not meet in ``sys.modules``.
    """
    package, folder = _roster_package(butler), directory / "modules"
    _put_package(package, directory)
    if not (folder / "__init__.py").is_file():
        _put_package(f"{package}.modules", folder)
        return {}
    return _named(_import(f"{package}.modules", folder))


def _load(name: str, package: str, folder: Path) -> Module:
    """The module of that name in a package of its own."""
    try:
        kinds = _named(_import(package, folder))
        if name not in kinds:
            listed = ", ".join(kinds) or "no module"
            raise ConfigInvalid(f"it defines {listed}, not {name!r}", path=folder / "__init__.py")
        return kinds[name]()
    except Exception as error:  # noqa: BLE001  (a stranger's code; it fails as the module does)
        return Unloadable(name, error)


def _named(package: ModuleType) -> dict[str, type[Module]]:
    """The modules a package offers: defined in it or below it, not merely imported to build on."""
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


def _put_package(name: str, directory: Path) -> None:
    package = ModuleType(name)
    package.__path__ = [str(directory)]
    for loaded in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
        del sys.modules[loaded]
    sys.modules[name] = package


def _import(name: str, folder: Path) -> ModuleType:
    if name in sys.modules:  # a neighbour imported it
        return sys.modules[name]
    path = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ConfigInvalid(f"{path} can not be imported", path=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # anything a stranger's file may raise while it is imported
        del sys.modules[name]
        raise ConfigInvalid(f"the module can not be imported: {error!r}", path=path) from error
    return module


def _packages(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/__init__.py"))


def _meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _wrong(
    config: ButlerConfig, module: str, message: str, hint: str | None = None
) -> ConfigInvalid:
    """An error that points at the module's section in butler.toml."""
    text = config.file.read_text(encoding="utf-8-sig")
    return Document(config.file, text, {}).invalid([Problem(("modules", module), message, hint)])
