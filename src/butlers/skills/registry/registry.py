"""The registry of skills: a readable JSON file, and the registered packs on disk.

Writers hold a file lock and replace the whole file, so a reader never waits and never sees a partial
write. A registered version never changes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from butlers.config.files import exclusive_lock, make_private_folder, replace_file
from butlers.domain.clock import Clock, SystemClock
from butlers.domain.errors import (
    SkillInUse,
    SkillNotFound,
    SkillOwnerMismatch,
    SkillTaken,
    SkillUsersUnknown,
    SkillVersionTaken,
)
from butlers.skills.registry import packs
from butlers.skills.registry.catalog import (
    RegisteredSkill,
    Release,
    SkillCatalog,
    SkillState,
    ordered,
    parse_catalog,
)
from butlers.skills.registry.new_skill import NewSkill, StagedSkill
from butlers.skills.registry.new_skill import staged as stage_skill
from butlers.skills.registry.resolver import dependency_cycle
from butlers.skills.skill import SkillSpec
from butlers.skills.tree import translate_os_errors
from butlers.skills.versions import Requirement, parse_requirement

_FILE = "skills.json"
_LOCK = ".skills.lock"


@dataclass(frozen=True, slots=True)
class SkillRegistry:
    """``packs_of`` returns the packs that each butler's configuration names.

    ``unreadable`` returns the configurations that cannot be read; while there are any, nothing is
    deleted.
    """

    home: Path
    packs_of: Callable[[], Mapping[str, Sequence[str]]] = dict
    clock: Clock = field(default_factory=SystemClock)
    unreadable: Callable[[], Sequence[str]] = tuple

    @property
    def file(self) -> Path:
        return self.home / "registry" / _FILE

    # -- reading

    def catalog(self) -> SkillCatalog:
        with translate_os_errors(self.file):
            try:
                content = self.file.read_bytes()
            except FileNotFoundError:
                return SkillCatalog()
        return parse_catalog(content, self.file)

    def list(self) -> tuple[RegisteredSkill, ...]:
        return tuple(skill for _, skill in sorted(self.catalog().skills.items()))

    def get(self, name: str) -> RegisteredSkill:
        return self.catalog().get(name)

    def usage(self) -> SkillUsage:
        return SkillUsage(self.catalog(), self.packs_of())

    def path(self, name: str, version: str, catalog: SkillCatalog | None = None) -> Path:
        """Return the folder of a version after verifying its hash.

        Pass ``catalog`` to avoid reading the registry file again.
        """
        skill = (catalog or self.catalog()).get(name)
        release = skill.release(version)
        return packs.verify(self._path(skill, version), release.digest)

    def _path(self, skill: RegisteredSkill, version: str) -> Path:
        return packs.pack_path(self.home, skill.id, version, skill.owner)

    # -- writing

    def register(self, new: NewSkill) -> RegisteredSkill:
        """Add a new skill. Registering the same content again only repairs damaged files."""
        return self._add(new, update=False)

    def update(self, new: NewSkill) -> RegisteredSkill:
        """Add a version to a registered skill."""
        return self._add(new, update=True)

    def approve(self, name: str, version: str) -> RegisteredSkill:
        """Let every butler use this version. Later versions need their own approval."""
        with self._writing() as catalog:
            skill = catalog.get(name)
            release = skill.release(version)
            packs.verify(self._path(skill, version), release.digest)
            approved = replace(release, state=SkillState.APPROVED)
            changed = replace(
                skill,
                releases={**skill.releases, version: approved},
                updated_at=self._now(),
            )
            self._write(catalog.with_skill(changed))
        return changed

    def grant(self, name: str, version: str | None, variables: Sequence[str]) -> Release:
        """Give a version these variables in addition to those that it declares, and no others.

        Later versions from the same origin keep them.
        """
        with self._writing() as catalog:
            skill = catalog.get(name)
            release = replace(skill.release(version), granted=tuple(dict.fromkeys(variables)))
            packs.verify(self._path(skill, release.version), release.digest)
            releases = {**skill.releases, release.version: release}
            changed = replace(skill, releases=releases, updated_at=self._now())
            self._write(catalog.with_skill(changed))
        return release

    def delete(self, name: str, version: str | None = None) -> None:
        """Remove one version, or the whole skill. Raise SkillInUse if a butler or a pack needs it."""
        with self._writing() as catalog:
            skill = catalog.get(name)
            removed = skill.versions if version is None else (skill.release(version).version,)
            self._refuse_if_used(catalog, skill, removed)
            kept = {key: found for key, found in skill.releases.items() if key not in removed}
            rest = (
                catalog.with_skill(replace(skill, releases=kept, updated_at=self._now()))
                if kept
                else catalog.without(name)
            )
            self._write(rest)
            for key in removed:
                packs.remove(self._path(skill, key))

    def _refuse_if_used(
        self, catalog: SkillCatalog, skill: RegisteredSkill, removed: Sequence[str]
    ) -> None:
        usage = SkillUsage(catalog, self.packs_of())
        users = {user for version in removed for user in usage.users(skill.id, version)}
        if len(removed) == len(skill.versions):
            users |= {*usage.butlers(skill.id)}
        users |= {found for key in removed for found in _dependents(catalog, skill, key, removed)}
        if users:
            label = skill.id if len(removed) > 1 else f"{skill.id}@{removed[0]}"
            raise SkillInUse(
                f"{label} is used by {', '.join(sorted(users))}",
                hint="remove it from their `[skills] packs` or dependencies first",
            )
        if unreadable := self.unreadable():
            raise SkillUsersUnknown(
                f"{skill.id} was not removed, because a butler may use it: {'; '.join(unreadable)}"
            )

    def _add(self, new: NewSkill, *, update: bool) -> RegisteredSkill:
        with self.staged(new) as staged:
            return self.add(staged, update=update)

    @contextmanager
    def staged(self, new: NewSkill) -> Iterator[StagedSkill]:
        """Yield a private copy of the skill as a valid pack. Nothing is registered yet."""
        with stage_skill(self.home, new) as staged:
            self._refuse_false_owner(new, staged.skill)
            yield staged

    def refuse_conflict(self, staged: StagedSkill) -> None:
        """Raise if ``add`` would: another owner has the name, or the version has other content."""
        before = self.catalog().skills.get(staged.skill.name)
        if before is not None:
            _is_registered(staged, before, update=True)

    def add(self, staged: StagedSkill, *, update: bool) -> RegisteredSkill:
        """Register the staged copy: as a new skill, or as a version of a registered one."""
        skill, version = staged.skill, staged.version
        with self._writing() as catalog:
            before = catalog.skills.get(skill.name)
            if before is None and update:
                raise SkillNotFound(
                    f"there is no skill {skill.name} to update",
                    hint="`butlers skills register` adds a new one",
                )
            release = self._release(staged, before)
            now = release.registered_at
            if before is None:
                owner = skill.owner or ""
                after = RegisteredSkill(skill.name, owner, {version: release}, now, now)
            elif _is_registered(staged, before, update=update):
                after = before
            else:
                # The new one first: it is the newest of versions that differ in their build only.
                releases = ordered({version: release, **before.releases})
                after = replace(before, releases=releases, updated_at=now)
            place = self._path(after, version)
            if after is not before or not packs.is_intact(place, staged.digest):
                packs.put(staged.folder, place)
            if after is not before:
                self._write(catalog.with_skill(after))
        return after

    def _release(self, staged: StagedSkill, before: RegisteredSkill | None) -> Release:
        new = staged.new
        return Release(
            version=staged.version,
            digest=staged.digest,
            state=new.state,
            registered_at=self._now(),
            dependencies=staged.skill.dependencies,
            origin=new.origin,
            commit=new.commit,
            granted=kept_grants(before, new.origin),
        )

    def _refuse_false_owner(self, new: NewSkill, skill: SkillSpec) -> None:
        """Only a butler itself, or a person who says so, may name that butler as the owner."""
        if skill.owner not in (new.by, new.owner) and skill.owner in self.packs_of():
            raise SkillOwnerMismatch(
                f"{skill.name} names the butler {skill.owner} as its owner, which did not make it",
                hint="name the author in its manifest,"
                f" or add --owner {shlex.quote(skill.owner or '')} to confirm",
            )

    @contextmanager
    def _writing(self) -> Iterator[SkillCatalog]:
        with translate_os_errors(self.file):
            make_private_folder(self.file.parent)
            with exclusive_lock(self.file.parent / _LOCK):
                yield self.catalog()

    def _write(self, catalog: SkillCatalog) -> None:
        replace_file(self.file, catalog.render(SkillUsage(catalog, self.packs_of()).all()))

    def _now(self) -> str:
        return self.clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")


def kept_grants(before: RegisteredSkill | None, origin: str | None) -> tuple[str, ...]:
    """Return the granted variables that a new version from this origin keeps."""
    approved = before.latest_approved if before is not None else None
    if before is None or approved is None:
        return ()
    release = before.release(approved)
    return release.granted if release.origin == origin else ()


def _is_registered(staged: StagedSkill, before: RegisteredSkill, *, update: bool) -> bool:
    """Return True if exactly this content is registered. Raise if it may not be added."""
    skill = staged.skill
    asking = staged.new.by or skill.owner
    if asking != before.owner:
        raise SkillOwnerMismatch(
            f"{skill.name} belongs to {before.owner}, not to {asking}",
            hint="choose another id, or let its owner publish the version",
        )
    known = before.releases.get(staged.version)
    if known is not None and known.digest == staged.digest:
        return True
    if known is not None:
        raise SkillVersionTaken(f"{skill.label} is already registered with different content")
    if not update:
        raise SkillTaken(
            f"{skill.name} is already registered, with {', '.join(before.versions)}",
            hint="`butlers skills update` adds a version to it",
        )
    return False


@dataclass(frozen=True, slots=True)
class SkillUsage:
    """Butlers that use a skill, derived from their configurations.

    ``packs`` has the requirements of each butler, such as ``("mail-tools@^1",)``.
    """

    catalog: SkillCatalog
    packs: Mapping[str, Sequence[str]]

    def butlers(self, name: str) -> tuple[str, ...]:
        """Return the butlers that name this skill, in any version."""
        return self.all().get(name, ())

    def all(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for butler, requirement in self._requirements():
            found.setdefault(requirement.name, {})[butler] = None
        return {name: tuple(sorted(butlers)) for name, butlers in found.items()}

    def users(self, name: str, version: str) -> tuple[str, ...]:
        """Return the butlers whose next start would load this version."""
        skill = self.catalog.get(name)
        return tuple(
            butler
            for butler, requirement in self._requirements()
            if requirement.name == name and _newest_match(skill, requirement) == version
        )

    def _requirements(self) -> Iterator[tuple[str, Requirement]]:
        for butler, written in self.packs.items():
            for pack in written:
                requirement = parse_requirement(pack)
                if requirement is not None:
                    yield butler, requirement


def _newest_match(skill: RegisteredSkill, requirement: Requirement) -> str | None:
    releases = skill.releases.values()
    return next((one.version for one in releases if _accepts(requirement, one)), None)


def _accepts(requirement: Requirement, release: Release) -> bool:
    """Return True if the release fits. A draft fits a requirement of its exact version only."""
    usable = release.state is SkillState.APPROVED or requirement.exact is not None
    return usable and requirement.holds(release.version)


def _dependents(
    catalog: SkillCatalog, skill: RegisteredSkill, version: str, removed: Sequence[str]
) -> Iterator[str]:
    """Yield registered skills that need ``version`` and accept none of the versions that remain.

    Packs that need each other in a cycle cannot be used, and do not prevent each other's removal.
    """
    rest = [found for key, found in skill.releases.items() if key not in removed]
    for other in catalog.skills.values():
        if other.id != skill.id and other.id in dependency_cycle(catalog, skill.id):
            continue  # nothing can use it either
        for release in other.releases.values():
            if other.id == skill.id and release.version in removed:
                continue
            for requirement in map(parse_requirement, release.dependencies):
                if requirement is None or requirement.name != skill.id:
                    continue
                if _accepts(requirement, skill.release(version)) and not any(
                    _accepts(requirement, found) for found in rest
                ):
                    yield f"{other.id}@{release.version}"
