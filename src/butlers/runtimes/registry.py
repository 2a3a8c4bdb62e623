"""The CLI runtimes: each folder beside this file registers one by exporting it as ``RUNTIME``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from butlers.runtimes.cli import CliRuntime


@cache
def cli_runtimes() -> Mapping[str, type[CliRuntime]]:
    """Return the runtimes by name, in the order in which ``type = "auto"`` tries them."""
    folder = Path(__file__).parent
    packages = sorted(found.name for found in pkgutil.iter_modules([str(folder)]) if found.ispkg)
    modules = [importlib.import_module(f"butlers.runtimes.{name}") for name in packages]
    return MappingProxyType({module.RUNTIME.name: module.RUNTIME for module in modules})
