"""The registry of skills: one file a person can read, and the packs beside it.

Writers take turns by a file lock; each write replaces the file whole, so a reader never waits and never
sees half of it. A version, once registered, never changes.
"""

from __future__ import annotations

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
from butlers.skills.formats import manifest
from butlers.skills.registry import packs
from butlers.skills.registry.catalogue import (
    Catalogue,
    Registered,
    Release,
    State,
    ordered,
    parse_catalogue,
)
from butlers.skills.skill import Skill
from butlers.skills.tree import digest_folder, translate_os_errors
from butlers.skills.usage import Usage, dependents

_FILE = "skills.json"
_LOCK = ".skills.lock"


def nobody() -> Mapping[str, Sequence[str]]:
    return {}


def nothing() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class NewSkill:
    """What is to be registered. ``by`` is the butler that asks; None is a person. ``origin`` is where it
    was installed from."""

    folder: Path
    by: str | None = None
    owner: str | None = None
    version: str | None = None
    state: State = State.APPROVED
    shared: Path | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class SkillRegistry:
    """``packs_of`` says which packs each butler's configuration names; usedBy is derived from it.
    ``unreadable`` says where that can not be told: nothing is deleted as long."""

    home: Path
    packs_of: Callable[[], Mapping[str, Sequence[str]]] = nobody
    clock: Clock = field(default_factory=SystemClock)
    unreadable: Callable[[], Sequence[str]] = nothing

    @property
    def file(self) -> Path:
        return self.home / "registry" / _FILE

    # -- reading

    def catalogue(self) -> Catalogue:
        with translate_os_errors(self.file):
            try:
                content = self.file.read_bytes()
            except FileNotFoundError:
                return Catalogue()
        return parse_catalogue(content, self.file)

    def list(self) -> tuple[Registered, ...]:
        return tuple(skill for _, skill in sorted(self.catalogue().skills.items()))

    def get(self, name: str) -> Registered:
        return self.catalogue().get(name)

    def usage(self) -> Usage:
        return Usage(self.catalogue(), self.packs_of())

    def path(self, name: str, version: str, catalogue: Catalogue | None = None) -> Path:
        """The folder of this version, verified byte by byte; whoever asks often reads the catalogue once."""
        skill = (catalogue or self.catalogue()).get(name)
        release = skill.release(version)
        return packs.verify(self._path(skill, version), release.digest)

    def _path(self, skill: Registered, version: str) -> Path:
        return packs.pack_path(self.home, skill.id, version, skill.owner)

    # -- writing

    def register(self, new: NewSkill) -> Registered:
        """Add a skill that is not there yet. The same content again only mends damaged files."""
        return self._add(new, update=False)

    def update(self, new: NewSkill) -> Registered:
        """Add a version to a skill that is there."""
        return self._add(new, update=True)

    def approve(self, name: str, version: str) -> Registered:
        """A person lets every butler use what is now there, and nothing that comes later."""
        with self._writing() as catalogue:
            skill = catalogue.get(name)
            release = skill.release(version)
            packs.verify(self._path(skill, version), release.digest)
            approved = replace(release, state=State.APPROVED)
            changed = replace(
                skill,
                releases={**skill.releases, version: approved},
                updated_at=self._now(),
            )
            self._write(catalogue.with_skill(changed))
        return changed

    def delete(self, name: str, version: str | None = None) -> None:
        """Remove one version, or the whole skill. Refused while somebody uses it, naming them."""
        with self._writing() as catalogue:
            skill = catalogue.get(name)
            gone = skill.versions if version is None else (skill.release(version).version,)
            self._refuse_if_used(catalogue, skill, gone)
            kept = {key: found for key, found in skill.releases.items() if key not in gone}
            rest = (
                catalogue.with_skill(replace(skill, releases=kept, updated_at=self._now()))
                if kept
                else catalogue.without(name)
            )
            self._write(rest)
            for key in gone:
                packs.remove(self._path(skill, key))

    def _refuse_if_used(self, catalogue: Catalogue, skill: Registered, gone: Sequence[str]) -> None:
        usage = Usage(catalogue, self.packs_of())
        users = {user for version in gone for user in usage.users(skill.id, version)}
        if len(gone) == len(skill.versions):
            users |= {*usage.butlers(skill.id)}
        users |= {found for key in gone for found in dependents(catalogue, skill.id, key, gone)}
        if users:
            label = skill.id if len(gone) > 1 else f"{skill.id}@{gone[0]}"
            raise SkillInUse(
                f"{label} is used by {', '.join(sorted(users))}",
                hint="take it out of their `[skills] packs` or dependencies first",
            )
        if unreadable := self.unreadable():
            raise SkillUsersUnknown(
                f"{skill.id} stays: a butler may use it. {'; '.join(unreadable)}"
            )

    def _add(self, new: NewSkill, *, update: bool) -> Registered:
        source = new.folder.resolve()
        with packs.staging(self.home, source.name) as staged:
            packs.copy_skill(source, staged, shared=new.shared)
            skill = _complete(new, staged)
            self._refuse_if_posing(new, skill)
            digest = digest_folder(staged)
            with self._writing() as catalogue:
                before = catalogue.skills.get(skill.name)
                same = before is not None and self._admit(new, skill, digest, before, update=update)
                if before is None and update:
                    raise SkillNotFound(
                        f"there is no skill {skill.name} to update",
                        hint="`butlers skills register` adds a new one",
                    )
                after = before if same else self._grown(before, new, skill, digest)
                assert after is not None
                place = self._path(after, _version(skill))
                if not same or not packs.is_intact(place, digest):
                    packs.put(staged, place)
                if not same:
                    self._write(catalogue.with_skill(after))
        return after

    def _refuse_if_posing(self, new: NewSkill, skill: Skill) -> None:
        """What belongs to a butler is given to it: only itself, or a person who says so, may name it."""
        if skill.owner not in (new.by, new.owner) and skill.owner in self.packs_of():
            raise SkillOwnerMismatch(
                f"{skill.name} says that it belongs to {skill.owner}, a butler that has not made it",
                hint=f"let its manifest name who made it, or add --owner {skill.owner} if you mean it",
            )

    def _admit(
        self, new: NewSkill, skill: Skill, digest: str, before: Registered, *, update: bool
    ) -> bool:
        """Whether exactly this is registered already; an error if it may not join what is there."""
        asking = new.by or skill.owner
        if asking != before.owner:
            raise SkillOwnerMismatch(
                f"{skill.name} belongs to {before.owner}, not to {asking}",
                hint="choose another id, or let its owner publish the version",
            )
        release = before.releases.get(_version(skill))
        if release is not None and release.digest == digest:
            return True
        if release is not None:
            raise SkillVersionTaken(f"{skill.label} is registered with other content")
        if not update:
            raise SkillTaken(
                f"{skill.name} is registered, with {', '.join(before.versions)}",
                hint="`butlers skills update` adds a version to it",
            )
        return False

    def _grown(
        self, before: Registered | None, new: NewSkill, skill: Skill, digest: str
    ) -> Registered:
        now, version = self._now(), _version(skill)
        release = Release(version, digest, new.state, now, skill.dependencies, new.origin)
        if before is None:
            return Registered(skill.name, skill.owner or "", {version: release}, now, now)
        releases = ordered({**before.releases, version: release})
        return replace(before, releases=releases, updated_at=now)

    @contextmanager
    def _writing(self) -> Iterator[Catalogue]:
        with translate_os_errors(self.file):
            make_private_folder(self.file.parent)
            with exclusive_lock(self.file.parent / _LOCK):
                yield self.catalogue()

    def _write(self, catalogue: Catalogue) -> None:
        replace_file(self.file, catalogue.render(Usage(catalogue, self.packs_of()).all()))

    def _now(self) -> str:
        return self.clock.now().isoformat(timespec="seconds").replace("+00:00", "Z")


def _version(skill: Skill) -> str:
    assert skill.version is not None, "a completed skill has one"
    return skill.version


def _complete(new: NewSkill, staged: Path) -> Skill:
    """The skill in the staged copy, with a manifest, or an error with all that is wrong."""
    checked = check(staged)
    if checked.skill is None or not checked.valid:
        raise InvalidSkill(
            f"{new.folder} can not be registered:",
            diagnostics=checked.errors_in(new.folder),
            hint=f"`butlers skills check {new.folder}` shows everything",
        )
    skill = checked.skill
    if new.by is not None and skill.owner not in (None, new.by):
        raise SkillOwnerMismatch(
            f"{skill.name} names {skill.owner} as its owner, and {new.by} wants to register it",
            hint=f'write "owner": "{new.by}"',
        )
    if skill.has_manifest:
        require_label(skill)
        return skill
    skill = skill.evolve(
        owner=skill.owner or new.by or new.owner,
        version=skill.version or new.version,
        has_manifest=True,
    )
    rendered = manifest.FORMAT.render(skill)
    require_label(skill)
    for path, content in rendered.items():
        (staged / path).write_bytes(content)
        (staged / path).chmod(0o444)
    return skill


def require_label(skill: Skill) -> None:
    """Both become a path here, so they are looked at here, whatever was checked before."""
    if not names.is_id(skill.name):
        raise InvalidSkill(
            f"{quoted(skill.name)} can not be the id of a skill",
            hint="lower-case words joined by single hyphens",
        )
    if skill.version is None or not names.is_version(skill.version):
        raise InvalidSkill(
            f"{quoted(skill.version or '')} can not be the version of a skill",
            hint="MAJOR.MINOR.PATCH, such as 1.0.0",
        )
