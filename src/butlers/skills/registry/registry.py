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
    InvalidSkill,
    SkillInUse,
    SkillNotFound,
    SkillOwnerMismatch,
    SkillTaken,
    SkillUsersUnknown,
    SkillVersionTaken,
)
from butlers.skills import names
from butlers.skills.check.rules import check
from butlers.skills.findings import quoted
from butlers.skills.formats import manifest, skill_md
from butlers.skills.registry import packs
from butlers.skills.registry.catalog import (
    RegisteredSkill,
    Release,
    SkillCatalog,
    SkillState,
    ordered,
    parse_catalog,
)
from butlers.skills.skill import SkillSpec
from butlers.skills.tree import digest_folder, translate_os_errors
from butlers.skills.versions import Requirement, parse_requirement

_FILE = "skills.json"
_LOCK = ".skills.lock"


@dataclass(frozen=True, slots=True)
class NewSkill:
    """A skill to register. ``by`` is the butler that asks, or None for a person; ``origin`` is the
    address that the skill was installed from."""

    folder: Path
    by: str | None = None
    owner: str | None = None
    version: str | None = None
    state: SkillState = SkillState.APPROVED
    shared: Path | None = None
    origin: str | None = None


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
        source = new.folder.resolve()
        with packs.staging(self.home, source.name) as staged:
            packs.copy_skill(source, staged, shared=new.shared)
            skill, version = _complete(new, staged)
            self._refuse_false_owner(new, skill)
            digest = digest_folder(staged)
            with self._writing() as catalog:
                before = catalog.skills.get(skill.name)
                if before is None and update:
                    raise SkillNotFound(
                        f"there is no skill {skill.name} to update",
                        hint="`butlers skills register` adds a new one",
                    )
                release = Release(
                    version, digest, new.state, self._now(), skill.dependencies, new.origin
                )
                if before is None:
                    now = release.registered_at
                    after = RegisteredSkill(
                        skill.name, skill.owner or "", {version: release}, now, now
                    )
                elif _is_registered(new, skill, release, before, update=update):
                    after = before
                else:
                    releases = ordered({**before.releases, version: release})
                    after = replace(before, releases=releases, updated_at=release.registered_at)
                place = self._path(after, version)
                if after is not before or not packs.is_intact(place, digest):
                    packs.put(staged, place)
                if after is not before:
                    self._write(catalog.with_skill(after))
        return after

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


def _is_registered(
    new: NewSkill, skill: SkillSpec, release: Release, before: RegisteredSkill, *, update: bool
) -> bool:
    """Return True if exactly this content is registered. Raise if it may not be added."""
    asking = new.by or skill.owner
    if asking != before.owner:
        raise SkillOwnerMismatch(
            f"{skill.name} belongs to {before.owner}, not to {asking}",
            hint="choose another id, or let its owner publish the version",
        )
    known = before.releases.get(release.version)
    if known is not None and known.digest == release.digest:
        return True
    if known is not None:
        raise SkillVersionTaken(f"{skill.label} is already registered with different content")
    if not update:
        raise SkillTaken(
            f"{skill.name} is already registered, with {', '.join(before.versions)}",
            hint="`butlers skills update` adds a version to it",
        )
    return False


def _complete(new: NewSkill, staged: Path) -> tuple[SkillSpec, str]:
    """Check the staged copy and add the fields of a pack if it has none. Return the skill and its version."""
    checked = check(staged)
    if checked.skill is None or not checked.valid:
        raise InvalidSkill(
            f"{new.folder} cannot be registered:",
            diagnostics=checked.errors_in(new.folder),
            hint=f"`butlers skills check {shlex.quote(str(new.folder))}` shows everything",
        )
    skill = checked.skill
    if new.by is not None and skill.owner not in (None, new.by):
        raise SkillOwnerMismatch(
            f"{skill.name} names {skill.owner} as its owner, but {new.by} registers it",
            hint=f'write "owner": "{new.by}"',
        )
    if skill.has_manifest:
        return skill, require_label(skill)
    skill = skill.evolve(
        owner=skill.owner or new.by or new.owner,
        version=skill.version or new.version,
        has_manifest=True,
    )
    # Another tool's manifest.json is a file of the skill and stays as it is.
    foreign = "manifest-foreign" in checked.reading.codes()
    rendered = skill_md.FORMAT.render(skill) if foreign else manifest.FORMAT.render(skill)
    version = require_label(skill)
    for path, content in rendered.items():
        replace_file(staged / path, content, 0o444)
    return skill, version


def require_label(skill: SkillSpec) -> str:
    """Return the version. Raise unless id and version are valid: both become part of a path."""
    if not names.is_id(skill.name):
        raise InvalidSkill(
            f"{quoted(skill.name)} is not a valid skill id",
            hint="use lower-case words joined by single hyphens",
        )
    if skill.version is None or not names.is_version(skill.version):
        raise InvalidSkill(
            f"{quoted(skill.version or '')} is not a valid skill version",
            hint="use MAJOR.MINOR.PATCH, such as 1.0.0",
        )
    return skill.version


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
    """Yield registered skills that need ``version`` and accept none of the versions that remain."""
    rest = [found for key, found in skill.releases.items() if key not in removed]
    for other in catalog.skills.values():
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
