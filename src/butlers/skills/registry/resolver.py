"""Resolve the packs of a butler: one version of each pack it names and of their dependencies.

The newest versions that fit together are chosen. A conflict is explained by the chains that lead to it.
``skills.lock`` records the result with hashes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.config.files import replace_file
from butlers.domain.errors import (
    SkillChanged,
    SkillConflict,
    SkillCycle,
    SkillNotFound,
    SkillRegistryBroken,
    SkillUnresolved,
)
from butlers.skills.registry.catalog import RegisteredSkill, Release, SkillCatalog, SkillState
from butlers.skills.tree import translate_os_errors
from butlers.skills.versions import Requirement, parse_requirement

MAX_PACKS = 200  # of a butler, and dependencies of one pack
MAX_STEPS = 20_000
LOCK_FILE = "skills.lock"


@dataclass(frozen=True, slots=True)
class RequiredPack:
    """A requirement, and the chain that leads to it: the butler, then pack after pack."""

    requirement: Requirement
    chain: tuple[str, ...]

    def __str__(self) -> str:
        return " → ".join((*self.chain, str(self.requirement)))


@dataclass(frozen=True, slots=True)
class ResolvedPack:
    id: str
    version: str
    digest: str
    owner: str
    required_by: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.id}@{self.version}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """``packs`` is sorted so that each pack follows its dependencies."""

    butler: str
    requirements: tuple[str, ...]
    packs: tuple[ResolvedPack, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "butler": self.butler,
            "requirements": list(self.requirements),
            "packs": [
                {
                    "id": pack.id,
                    "version": pack.version,
                    "hash": pack.digest,
                    "owner": pack.owner,
                    "requiredBy": list(pack.required_by),
                }
                for pack in self.packs
            ],
        }


def resolve(
    catalog: SkillCatalog,
    butler: str,
    requirements: Sequence[str],
    locked: Mapping[str, ResolvedPack] | None = None,
) -> Resolution:
    """Choose versions for the requirements; ``locked`` versions are preferred where they still fit.

    A draft is chosen only for the butler that made it, and only if its configuration names that exact
    version.
    """
    wanted = []
    for written in requirements:
        requirement = parse_requirement(written)
        if requirement is None:
            raise SkillUnresolved(
                f"{butler}: {written!r} is not id, id@version or id@range",
                hint='such as "mail-tools@1.0.0" or "mail-tools@^1.2"',
            )
        wanted.append(RequiredPack(requirement, (butler,)))
    named = frozenset(str(one.requirement) for one in wanted if one.requirement.exact)
    solver = _Solver(catalog, butler, named, locked or {})
    chosen = solver.solve(tuple(wanted), {})
    if chosen is None:
        raise solver.failure or SkillUnresolved()
    packs = tuple(_in_order(chosen))
    return Resolution(butler, tuple(requirements), packs, tuple(_warnings(chosen)))


@dataclass(slots=True)
class _Solver:
    """Depth-first search from the newest versions; the first failure becomes the error."""

    catalog: SkillCatalog
    butler: str
    named: frozenset[str]  # exact versions in the butler's configuration
    locked: Mapping[str, ResolvedPack]
    failure: SkillUnresolved | SkillNotFound | None = None
    steps: int = 0

    def solve(
        self, pending: tuple[RequiredPack, ...], chosen: dict[str, _Choice]
    ) -> dict[str, _Choice] | None:
        """Choose a version for every pending requirement. The recursion depth is at most MAX_PACKS."""
        for number, wanted in enumerate(pending, start=1):
            self._count(chosen)
            taken = chosen.get(wanted.requirement.name)
            if (cycle := _cycle(wanted)) is not None:
                self._fail(SkillCycle(f"circular dependency: {cycle}"))
                return None
            if taken is None:
                return self._choose(wanted, pending[number:], chosen)
            if not wanted.requirement.holds(taken.release.version):
                self._fail(_conflict(taken, wanted))
                return None
        self._count(chosen)
        return chosen

    def _choose(
        self, wanted: RequiredPack, rest: tuple[RequiredPack, ...], chosen: dict[str, _Choice]
    ) -> dict[str, _Choice] | None:
        skill = self._skill(wanted)
        if skill is None:
            return None
        for release in self._candidates(skill, wanted):
            if len(release.dependencies) > MAX_PACKS:
                self._fail(
                    SkillUnresolved(
                        f"{skill.id}@{release.version} needs more than {MAX_PACKS} packs: {wanted}",
                        hint="reduce its dependencies",
                    )
                )
                continue
            choice = _Choice(wanted, skill, release)
            found = self.solve((*choice.dependencies(), *rest), {**chosen, skill.id: choice})
            if found is not None:
                return found
        return None

    def _count(self, chosen: Mapping[str, _Choice]) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS or len(chosen) > MAX_PACKS:
            raise SkillUnresolved(
                f"{self.butler}: more than {MAX_PACKS} packs, or too many combinations of versions",
                hint="name exact versions of the packs that others depend on",
            )

    def _skill(self, wanted: RequiredPack) -> RegisteredSkill | None:
        skill = self.catalog.skills.get(wanted.requirement.name)
        if skill is None:
            self._fail(
                SkillNotFound(
                    f"there is no skill {wanted.requirement.name}: {wanted}",
                    hint="`butlers skills list` shows all registered skills",
                )
            )
        return skill

    def _candidates(self, skill: RegisteredSkill, wanted: RequiredPack) -> Iterator[Release]:
        fitting = [
            release
            for release in skill.releases.values()
            if wanted.requirement.holds(release.version)
        ]
        usable = [
            release
            for release in fitting
            if release.state is SkillState.APPROVED or self._is_own_named_draft(skill, release)
        ]
        if not fitting:
            self._fail(
                SkillNotFound(
                    f"no version of {skill.id} fits: {wanted}",
                    hint=f"available: {', '.join(skill.versions)}",
                )
            )
        elif not usable:
            label = f"{skill.id}@{fitting[0].version}"
            self._fail(
                SkillUnresolved(
                    f"{label} is a draft of {skill.owner}: {wanted}",
                    hint=f"`butlers skills approve {shlex.quote(label)}` lets other butlers use it",
                )
            )
        kept = self.locked.get(skill.id)
        for release in sorted(
            usable, key=lambda found: kept is None or found.version != kept.version
        ):
            if (
                kept is not None
                and kept.version == release.version
                and kept.digest != release.digest
            ):
                raise SkillChanged(
                    f"{kept.label} is locked as {kept.digest} and registered as {release.digest}",
                    hint="find out what changed it; then delete skills.lock to use the registered version",
                )
            yield release

    def _is_own_named_draft(self, skill: RegisteredSkill, release: Release) -> bool:
        return skill.owner == self.butler and f"{skill.id}@{release.version}" in self.named

    def _fail(self, failure: SkillUnresolved | SkillNotFound) -> None:
        self.failure = self.failure or failure


@dataclass(frozen=True, slots=True)
class _Choice:
    wanted: RequiredPack
    skill: RegisteredSkill
    release: Release

    def dependencies(self) -> tuple[RequiredPack, ...]:
        """Return the requirements of the chosen version."""
        chain = (*self.wanted.chain, f"{self.skill.id}@{self.release.version}")
        needed = map(parse_requirement, self.release.dependencies)
        return tuple(RequiredPack(requirement, chain) for requirement in needed if requirement)


def _conflict(taken: _Choice, wanted: RequiredPack) -> SkillConflict:
    available = ", ".join(taken.skill.versions)
    return SkillConflict(
        f"no version of {taken.skill.id} fits both: {taken.wanted}; and {wanted}",
        hint=f"available: {available}; change one requirement, a butler has one version of each pack",
    )


def _cycle(wanted: RequiredPack) -> str | None:
    names = [label.partition("@")[0] for label in wanted.chain[1:]]
    if wanted.requirement.name not in names:
        return None
    start = names.index(wanted.requirement.name) + 1
    return " → ".join((*wanted.chain[start:], str(wanted.requirement)))


def dependency_cycle(
    catalog: SkillCatalog, name: str, dependencies: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the ids of a cycle through the skill, or an empty tuple.

    ``dependencies`` are those of a version that is not registered yet.
    """
    came_from: dict[str, str] = {}
    waiting = [(name, other) for other in _needed(catalog, name, dependencies)]
    while waiting:
        from_name, other = waiting.pop()
        if other == name:
            return _path_back(came_from, name, from_name)
        if other not in came_from:
            came_from[other] = from_name
            waiting += [(other, needed) for needed in _needed(catalog, other)]
    return ()


def _needed(
    catalog: SkillCatalog, name: str, dependencies: Sequence[str] | None = None
) -> set[str]:
    """Return the ids that any version of the skill needs."""
    skill = catalog.skills.get(name)
    releases = skill.releases.values() if skill else ()
    written = {*(dependencies or ()), *(one for found in releases for one in found.dependencies)}
    return {requirement.name for one in written if (requirement := parse_requirement(one))}


def _path_back(came_from: Mapping[str, str], name: str, last: str) -> tuple[str, ...]:
    chain = [name, last]
    while chain[-1] != name:
        chain.append(came_from[chain[-1]])
    return tuple(reversed(chain))


def _in_order(chosen: Mapping[str, _Choice]) -> Iterator[ResolvedPack]:
    done: set[str] = set()

    def visit(name: str) -> Iterator[ResolvedPack]:
        if name in done:
            return
        done.add(name)
        choice = chosen[name]
        for needed in choice.dependencies():
            yield from visit(needed.requirement.name)
        yield ResolvedPack(
            name,
            choice.release.version,
            choice.release.digest,
            choice.skill.owner,
            choice.wanted.chain,
        )

    for name in chosen:
        yield from visit(name)


def _warnings(chosen: Mapping[str, _Choice]) -> Iterator[str]:
    for choice in chosen.values():
        requirement = choice.wanted.requirement
        if requirement.exact is None and requirement.range is None:
            yield (
                f"{choice.wanted} names no version, so the latest, {choice.release.version}, is used;"
                f' write "{requirement.name}@{choice.release.version}" to pin it'
            )


def write_lock(file: Path, resolution: Resolution) -> None:
    content = json.dumps(resolution.as_dict(), indent=2) + "\n"
    replace_file(file, content.encode(), 0o644)


def read_lock(file: Path) -> Mapping[str, ResolvedPack]:
    """Return the locked packs by id; empty without a lock file."""
    with translate_os_errors(file):
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return {}
    try:
        packs = [_pack(entry) for entry in json.loads(content)["packs"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SkillRegistryBroken(
            f"{file}: invalid lock file: {error!r}",
            hint="delete it: the packs are then resolved again to the newest versions that fit",
        ) from error
    return {pack.id: pack for pack in packs}


def _pack(entry: Mapping[str, Any]) -> ResolvedPack:
    return ResolvedPack(
        id=str(entry["id"]),
        version=str(entry["version"]),
        digest=str(entry["hash"]),
        owner=str(entry["owner"]),
        required_by=tuple(map(str, entry["requiredBy"])),
    )
