"""The packs that a butler's configuration names: load them at its start, and assign new ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.config.butler import ButlerConfig
from butlers.config.packs import name_pack, source_file
from butlers.config.roster import remember_butler
from butlers.domain.errors import InvalidSkill, SkillError, SkillUnresolved
from butlers.skills.reader import read_skill
from butlers.skills.registry.catalog import SkillCatalog, SkillState
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import Resolution, ResolvedPack, resolve
from butlers.skills.skill import SkillSpec
from butlers.skills.tree import translate_os_errors


@dataclass(frozen=True, slots=True)
class LoadedPack:
    """One version of a pack. Its hash was verified and its state read when it was loaded."""

    resolved: ResolvedPack
    folder: Path
    skill: SkillSpec
    draft: bool = False

    @property
    def id(self) -> str:
        return self.resolved.id

    @property
    def label(self) -> str:
        return self.resolved.label


@dataclass(frozen=True, slots=True)
class FailedPack:
    """A requirement of the configuration, or of another pack, that could not be loaded."""

    wanted: str
    error: SkillError


@dataclass(frozen=True, slots=True)
class LoadResult:
    """``packs`` is sorted so that each pack follows its dependencies."""

    packs: tuple[LoadedPack, ...] = ()
    failed: tuple[FailedPack, ...] = ()
    warnings: tuple[str, ...] = ()


def load_packs(
    registry: SkillRegistry,
    butler: str,
    requirements: Sequence[str],
    locked: Mapping[str, ResolvedPack] | None = None,
) -> LoadResult:
    """Load every pack that can be loaded. A pack that fails takes along the packs that need it.

    Raise only if the registry cannot be read.
    """
    if not requirements:
        return LoadResult()
    catalog = registry.catalog()
    resolution, failed = _resolve(catalog, butler, requirements, locked or {})
    packs: dict[str, LoadedPack] = {}
    broken: dict[str, FailedPack] = {}
    for pack in resolution.packs:
        try:
            _require_dependencies(pack, catalog, broken)
            packs[pack.id] = _load(registry, pack, catalog)
        except SkillError as error:
            broken[pack.id] = FailedPack(pack.label, error)
    return LoadResult(tuple(packs.values()), (*failed, *broken.values()), resolution.warnings)


def _resolve(
    catalog: SkillCatalog,
    butler: str,
    requirements: Sequence[str],
    locked: Mapping[str, ResolvedPack],
) -> tuple[Resolution, list[FailedPack]]:
    """Resolve all requirements together; if that fails, add them one by one and skip misfits."""
    try:
        return resolve(catalog, butler, requirements, locked), []
    except SkillError:
        pass
    failed: list[FailedPack] = []
    fitting: list[str] = []
    found = Resolution(butler, ())
    for requirement in requirements:
        try:
            found = resolve(catalog, butler, [*fitting, requirement], locked)
        except SkillError as error:
            failed.append(FailedPack(requirement, error))
        else:
            fitting.append(requirement)
    return found, failed


def _require_dependencies(
    pack: ResolvedPack, catalog: SkillCatalog, broken: Mapping[str, FailedPack]
) -> None:
    needed = catalog.get(pack.id).release(pack.version).dependencies
    for name in (written.partition("@")[0] for written in needed):
        if name in broken:
            raise SkillUnresolved(f"{pack.label} needs {broken[name].wanted}, which failed to load")


def _load(registry: SkillRegistry, pack: ResolvedPack, catalog: SkillCatalog) -> LoadedPack:
    folder = registry.path(pack.id, pack.version, catalog)
    skill = read_skill(folder).skill
    if skill is None:
        raise InvalidSkill(f"{folder} contains no skill")
    release = catalog.get(pack.id).release(pack.version)
    return LoadedPack(pack, folder, release.with_grants(skill), release.state is SkillState.DRAFT)


def assign(registry: SkillRegistry, config: ButlerConfig, wanted: str) -> dict[str, Any]:
    """Add a registered skill to the packs of a butler's configuration file.

    Raise before anything is written if the butler could not load it together with its other packs.
    """
    catalog = registry.catalog()
    name = wanted.partition("@")[0]
    others = [pack for pack in config.skills.packs if pack.partition("@")[0] != name]
    found = resolve(catalog, config.name, [*others, wanted])
    pack = next(pack for pack in found.packs if pack.id == name)
    if catalog.get(pack.id).release(pack.version).state is SkillState.DRAFT:
        raise SkillUnresolved(
            f"{pack.label} is a draft of {pack.owner} and cannot be assigned",
            hint=f"`butlers skills approve {shlex.quote(pack.label)}` first",
        )
    with translate_os_errors(registry.home):  # before the file names it: it must not be removed
        remember_butler(registry.home, config.directory)
    file = source_file(config.directory, registry.home)
    changed = name_pack(file, pack.label)
    return {"skill": pack.label, "butler": config.name, "file": str(file), "changed": changed}
