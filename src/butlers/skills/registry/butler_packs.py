"""What a butler's configuration names, made ready: resolved, verified and read. One that fails is told, and
takes along only those that need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from butlers.domain.errors import InvalidSkill, SkillError, SkillUnresolved
from butlers.skills.reader import read_skill
from butlers.skills.registry.catalogue import Catalogue, State
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import Resolution, Resolved, resolve
from butlers.skills.skill import Skill


@dataclass(frozen=True, slots=True)
class Loaded:
    """One version of a pack, whose every byte was as registered when it was loaded."""

    resolved: Resolved
    folder: Path
    skill: Skill
    draft: bool = False  # when it was loaded

    @property
    def id(self) -> str:
        return self.resolved.id

    @property
    def label(self) -> str:
        return self.resolved.label


@dataclass(frozen=True, slots=True)
class Failed:
    """``wanted`` is what the configuration says, or the pack that something else needs."""

    wanted: str
    error: SkillError


@dataclass(frozen=True, slots=True)
class Loading:
    """``packs`` has each one after all it depends on."""

    packs: tuple[Loaded, ...] = ()
    failed: tuple[Failed, ...] = ()
    warnings: tuple[str, ...] = ()


def load_packs(
    registry: SkillRegistry,
    butler: str,
    requirements: Sequence[str],
    locked: Mapping[str, Resolved] | None = None,
) -> Loading:
    """All that can be had of what is asked for. Only a registry that can not be read is raised."""
    if not requirements:
        return Loading()
    catalogue = registry.catalogue()
    resolution, failed = _resolve(catalogue, butler, requirements, locked or {})
    packs: dict[str, Loaded] = {}
    broken: dict[str, Failed] = {}
    for pack in resolution.packs:
        try:
            _refuse_without(pack, catalogue, broken)
            packs[pack.id] = _read(registry, pack, catalogue)
        except SkillError as error:
            broken[pack.id] = Failed(pack.label, error)
    return Loading(tuple(packs.values()), (*failed, *broken.values()), resolution.warnings)


def _resolve(
    catalogue: Catalogue, butler: str, requirements: Sequence[str], locked: Mapping[str, Resolved]
) -> tuple[Resolution, list[Failed]]:
    """All together, where that goes; else one after the other, without those that do not fit."""
    try:
        return resolve(catalogue, butler, requirements, locked), []
    except SkillError:
        pass
    failed: list[Failed] = []
    fitting: list[str] = []
    found = Resolution(butler, ())
    for requirement in requirements:
        try:
            found = resolve(catalogue, butler, [*fitting, requirement], locked)
        except SkillError as error:
            failed.append(Failed(requirement, error))
        else:
            fitting.append(requirement)
    return found, failed


def _refuse_without(pack: Resolved, catalogue: Catalogue, broken: Mapping[str, Failed]) -> None:
    needed = catalogue.get(pack.id).release(pack.version).dependencies
    for name in (written.partition("@")[0] for written in needed):
        if name in broken:
            raise SkillUnresolved(f"{pack.label} needs {broken[name].wanted}, which failed")


def _read(registry: SkillRegistry, pack: Resolved, catalogue: Catalogue) -> Loaded:
    folder = registry.path(pack.id, pack.version, catalogue)
    skill = read_skill(folder).skill
    if skill is None:
        raise InvalidSkill(f"{folder} holds no skill")
    state = catalogue.get(pack.id).release(pack.version).state
    return Loaded(pack, folder, skill, state is State.DRAFT)
