"""A butler's folder as the checks see it: configuration, tools, jobs, skills and reflexes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from butlers.config.butler import ButlerConfig, ButlerKind, load_butler_config
from butlers.config.settings import Settings
from butlers.daemon import mcp_server
from butlers.daemon.roles import roles_of
from butlers.domain.caller import CallerKind
from butlers.domain.diagnostic import Diagnostic, Severity
from butlers.domain.errors import ButlersError
from butlers.modules.base import Module, UnloadableModule
from butlers.modules.registry import load_modules
from butlers.skills.reflexes import ReflexBook, load_reflexes
from butlers.tools.catalogue import core_tools
from butlers.tools.declaration import ToolSpec, spec_of
from butlers.tools.role import Role


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as a session sees it."""

    name: str
    arguments: frozenset[str]
    size: int  # bytes in a tool list


@dataclass(frozen=True, slots=True)
class RosterButler:
    folder: Path
    config: ButlerConfig | None = None
    own_tools: Mapping[str, ListedTool] = field(default_factory=dict)
    core: Mapping[str, ListedTool] = field(default_factory=dict)  # and of shared modules
    names: frozenset[str] = frozenset()  # of all tools, for any caller
    jobs: frozenset[str] = frozenset()
    book: ReflexBook = field(default_factory=ReflexBook)
    problems: tuple[Diagnostic, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_domain(self) -> bool:
        return self.config is not None and self.config.role is ButlerKind.DOMAIN

    @property
    def tools(self) -> dict[str, ListedTool]:
        return {**self.core, **self.own_tools}

    @property
    def skills(self) -> list[Path]:
        """The folders of the butler's skills, by name."""
        folder = self.folder / "skills"
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(entry for entry in found if (entry / "SKILL.md").is_file())


def problem(code: str, message: str, file: Path, hint: str | None = None) -> Diagnostic:
    return Diagnostic(f"roster-{code}", Severity.ERROR, message, file, hint=hint)


def advice(code: str, message: str, file: Path, hint: str | None = None) -> Diagnostic:
    return Diagnostic(f"roster-{code}", Severity.WARNING, message, file, hint=hint)


def load_roster_butler(folder: Path, settings: Settings) -> RosterButler:
    book = load_reflexes(folder / "skills")
    try:
        config = load_butler_config(folder, settings)
        modules = load_modules(config)
    except ButlersError as error:
        failed = problem("config", error.message, folder / "butler.toml", error.hint)
        return RosterButler(folder, book=book, problems=(failed, *book.diagnostics))
    broken = [
        problem(
            "module", f"the module {one.name} cannot be loaded: {one.error}", folder / "modules"
        )
        for one in modules
        if isinstance(one, UnloadableModule)
    ]
    roles = tuple(roles_of(config))
    own = {s.name: s for module in modules if module.name == config.name for s in _specs(module)}
    others = {s.name: s for module in modules if module.name != config.name for s in _specs(module)}
    return RosterButler(
        folder,
        config,
        _listed(own),
        {**_listed_core(roles), **_listed(others)},
        frozenset((*own, *others, *(spec.name for spec in _core(roles)))),
        frozenset(job.__name__ for module in modules for job in module.jobs),
        book,
        (*broken, *book.diagnostics),
    )


@cache
def _core(roles: tuple[type[Role], ...]) -> tuple[ToolSpec, ...]:
    return core_tools(*(role() for role in roles))


@cache
def _listed_core(roles: tuple[type[Role], ...]) -> dict[str, ListedTool]:
    return _listed({spec.name: spec for spec in _core(roles)})


def _specs(module: Module) -> list[ToolSpec]:
    return [spec_of(function) for function in module.tools]


def _listed(specs: Mapping[str, ToolSpec]) -> dict[str, ListedTool]:
    """Return the tools that sessions may call."""
    offered = {name: spec for name, spec in specs.items() if CallerKind.SESSION in spec.callers}
    return {
        name: ListedTool(name, frozenset(tool.parameters.get("properties", {})), _size(name, tool))
        for name, tool in mcp_server.build_tools(offered).items()
    }


def _size(name: str, tool: Any) -> int:
    listed = {"name": name, "description": tool.description, "inputSchema": tool.parameters}
    return len(json.dumps(listed, ensure_ascii=False).encode())
