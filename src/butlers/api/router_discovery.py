"""Discovery of ``api/router.py`` in the folders of butlers: a router of the JSON API, and panels."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import structlog
from fastapi import APIRouter

from butlers.api.panels import Panel

FILE = Path("api") / "router.py"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ButlerPage:
    """The parts that one butler's folder adds to the dashboard."""

    butler: str
    router: APIRouter | None = None
    panels: tuple[Panel, ...] = ()
    error: str | None = None  # why the file cannot be used


def discover_pages(folders: Sequence[Path]) -> dict[str, ButlerPage]:
    """Load the file of each folder that has one. A file that fails is reported and left out."""
    return {folder.name: _load(folder) for folder in folders if (folder / FILE).is_file()}


def _load(folder: Path) -> ButlerPage:
    try:
        module = _import(folder)
        router, panels = getattr(module, "router", None), getattr(module, "PANELS", ())
        if router is not None and not isinstance(router, APIRouter):
            raise TypeError("`router` is not an APIRouter")
        if router is None and not panels:
            raise TypeError("it defines neither `router` nor `PANELS`")
        return ButlerPage(folder.name, router, tuple(panels))
    except Exception as error:  # code from outside this package
        log.exception("dashboard routes failed", butler=folder.name)
        return ButlerPage(folder.name, error=f"{type(error).__name__}: {error}")


def _import(folder: Path) -> ModuleType:
    """Import the file under a private name; ``models.py`` beside it is a relative import."""
    package = f"butlers_dashboard_{folder.name.replace('-', '_')}"
    parent = ModuleType(package)
    parent.__path__ = [str(folder / FILE.parent)]
    for name in [one for one in sys.modules if f"{one}.".startswith(f"{package}.")]:
        del sys.modules[name]
    sys.modules[package] = parent
    return importlib.import_module(f"{package}.{FILE.stem}")
