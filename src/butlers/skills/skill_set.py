"""All skills that one butler has: those of its own folder, the packs of its configuration, and those that it
made itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path

import structlog

from butlers.domain.errors import (
    SkillChanged,
    SkillError,
    SkillInstallationError,
    SkillNotFound,
    SkillTaken,
)
from butlers.skills.install.mount import AGENTS_FOLDER, CLAUDE_FOLDER, SkillCopy, SkillInstaller
from butlers.skills.reader import REFLEX_FILE, read_skill, scan_skills
from butlers.skills.registry import packs
from butlers.skills.registry.butler_packs import FailedPack, LoadedPack, LoadResult, load_packs
from butlers.skills.registry.catalog import RegisteredSkill, SkillState
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import LOCK_FILE, read_lock
from butlers.skills.scripts.runner import Pack
from butlers.skills.skill import SkillSpec

log = structlog.get_logger()

FOLDER = "skills"
CUSTOM = "custom"  # below it: what the butler makes itself


class SkillOrigin(StrEnum):
    OWN = "own"  # of the butler's folder; passive, a person put it there
    PACK = "pack"  # named by the configuration
    MADE = "made"  # by a session of this butler


@dataclass(frozen=True, slots=True)
class ButlerSkill:
    pack: Pack
    origin: SkillOrigin
    draft: bool = False

    @property
    def skill(self) -> SkillSpec:
        return self.pack.skill

    @property
    def name(self) -> str:
        return self.pack.skill.name

    def verify(self) -> None:
        """SkillChanged unless every byte is as registered; a folder of the butler's own is what it is."""
        if self.pack.digest is not None:
            packs.verify(self.pack.folder, self.pack.digest)


@dataclass(slots=True)
class ButlerSkillSet:
    """``directory`` is the butler's folder. What its configuration names was loaded once, at its start."""

    registry: SkillRegistry
    butler: str
    directory: Path
    loading: LoadResult = field(default_factory=LoadResult)

    @classmethod
    def open(
        cls, registry: SkillRegistry, butler: str, directory: Path, requirements: Sequence[str]
    ) -> ButlerSkillSet:
        """Never raises for a pack: one that can not be had is told in ``loading.failed``."""
        shelf = cls(registry, butler, directory)
        try:
            locked = read_lock(directory / LOCK_FILE)
            loading = load_packs(registry, butler, requirements, locked)
        except SkillError as error:  # the registry or the lock itself
            loading = LoadResult(failed=tuple(FailedPack(wanted, error) for wanted in requirements))
        shelf.loading = shelf._without_shadows(loading)
        return shelf

    @property
    def shared(self) -> Path:
        """The roster's own, which links of a butler's folder may lead to."""
        return self.directory.parent / "shared" / FOLDER

    @property
    def custom(self) -> Path:
        return self.directory / FOLDER / CUSTOM

    @property
    def offers(self) -> bool:
        """Whether there is anything to list, or a place for what sessions make."""
        return bool(self.given() or self._has_room())

    def packs(self) -> tuple[ButlerSkill, ...]:
        """What the configuration names, each after all it depends on."""
        return tuple(
            ButlerSkill(
                Pack(loaded.folder, loaded.skill, loaded.resolved.digest),
                SkillOrigin.PACK,
                loaded.draft and self._is_still_a_draft(loaded),
            )
            for loaded in self.loading.packs
        )

    def given(self) -> tuple[ButlerSkill, ...]:
        """What people gave it: its packs, and its own folder's."""
        return _each_once((*self.packs(), *self._own()))

    def skills(self) -> tuple[ButlerSkill, ...]:
        """All of them, each name once: a name never means another skill than it did."""
        return _each_once((*self.given(), *self._made_if_known()))

    def listed(self) -> tuple[ButlerSkill, ...]:
        """All of them, and the drafts of newer versions, which are had by their exact version only."""
        known = self.skills()
        labels = {shelved.skill.label for shelved in known}
        newer = (made for made in self._made_if_known() if made.draft)
        return (*known, *(made for made in newer if made.skill.label not in labels))

    def failed(self) -> tuple[FailedPack, ...]:
        """What can not be had: packs, and all that it made while the registry can not be read."""
        try:
            self.registry.catalog()
        except SkillError as error:
            return (*self.loading.failed, FailedPack("what this butler made", error))
        return self.loading.failed

    def find(self, name: str) -> ButlerSkill:
        """By its name, with or without its version, by its folder's name, or as a prompt names it."""
        wanted, _at, version = name.removeprefix(f"{FOLDER}.").partition("@")
        for shelved in chain(self.given(), self._made()):
            known = {shelved.name, shelved.pack.folder.name.partition("@")[0]}
            if wanted in known and version in ("", shelved.skill.version):
                return shelved
        for failed in self.loading.failed:
            if failed.wanted.partition("@")[0] == wanted:
                raise failed.error
        there = ", ".join(sorted(shelved.name for shelved in self.skills())) or "none"
        raise SkillNotFound(f"there is no skill {name!r} here", hint=f"there are: {there}")

    def mount(self, home: Path) -> tuple[Path, ...]:
        """Copy all that can be to where the CLIs look below HOME; the folders where they are."""
        mounts = [_mount(shelved) for shelved in self.skills()]
        folders = (home / CLAUDE_FOLDER, home / AGENTS_FOLDER)
        return tuple(folder for folder in folders if self._mount_into(folder, mounts))

    def _mount_into(self, folder: Path, mounts: Sequence[SkillCopy]) -> bool:
        """Whether any is there now; one that can not be copied is left out and told by its name."""
        mounted = False
        for mount in mounts:
            try:
                SkillInstaller(folder, self.shared).install([mount])
            except SkillInstallationError as error:
                log.warning("skill not mounted", skill=mount.name, error=error.message)
            else:
                mounted = True
        return mounted

    def _has_room(self) -> bool:
        """Whether sessions may make skills here: not where the folder is there for reflexes only."""
        folder = self.directory / FOLDER
        if self.custom.is_dir():
            return True
        return folder.is_dir() and not any(folder.glob(f"*/{REFLEX_FILE}"))

    def _is_still_a_draft(self, loaded: LoadedPack) -> bool:
        """A person may have approved it since the start."""
        try:
            release = self.registry.get(loaded.id).release(loaded.resolved.version)
        except SkillError:
            return True
        return release.state is SkillState.DRAFT or release.digest != loaded.resolved.digest

    def _own(self) -> Iterator[ButlerSkill]:
        root = self.directory / FOLDER
        if not root.is_dir():
            return
        for found in scan_skills(root, self.shared, max_depth=1).skills:
            if found.reading.skill is not None:
                yield ButlerSkill(
                    Pack(found.folder, found.reading.skill, None, self.shared), SkillOrigin.OWN
                )

    def _made_if_known(self) -> tuple[ButlerSkill, ...]:
        """None while the registry can not be read: its own folder's skills need none."""
        try:
            return tuple(self._made())
        except SkillError as error:
            log.warning("skills that the butler made are not there", error=error.message)
            return ()

    def _made(self) -> Iterator[ButlerSkill]:
        for registered in self.registry.catalog().skills.values():
            if registered.owner == self.butler:
                yield from self._made_by_it(registered)

    def _made_by_it(self, registered: RegisteredSkill) -> Iterator[ButlerSkill]:
        """The newest that a person has approved, and then the draft that is newer."""
        # What was installed may claim any owner; it is given by the configuration only.
        own = [release for release in registered.releases.values() if release.origin is None]
        approved = [release for release in own if release.state is SkillState.APPROVED]
        drafts = [release for release in own[:1] if release.state is SkillState.DRAFT]
        for release in (*approved[:1], *drafts):
            folder = packs.pack_path(
                self.registry.home, registered.id, release.version, registered.owner
            )
            skill = read_skill(folder).skill
            if skill is not None:
                pack = Pack(folder, skill, release.digest)
                yield ButlerSkill(pack, SkillOrigin.MADE, release.state is SkillState.DRAFT)

    def _without_shadows(self, loading: LoadResult) -> LoadResult:
        """A pack of a name that the butler's folder has already is refused, not hidden."""
        own = {shelved.name for shelved in self._own()}
        taken = [loaded for loaded in loading.packs if loaded.id in own]
        if not taken:
            return loading
        failed = tuple(
            FailedPack(loaded.label, SkillTaken(f"the butler's own folder has a skill {loaded.id}"))
            for loaded in taken
        )
        kept = tuple(loaded for loaded in loading.packs if loaded not in taken)
        return replace(loading, packs=kept, failed=(*loading.failed, *failed))


def _each_once(skills: Iterable[ButlerSkill]) -> tuple[ButlerSkill, ...]:
    found: dict[str, ButlerSkill] = {}
    for shelved in skills:
        found.setdefault(shelved.name, shelved)
    return tuple(found.values())


def _mount(shelved: ButlerSkill) -> SkillCopy:
    pack = shelved.pack
    name = pack.folder.name if shelved.origin is SkillOrigin.OWN else shelved.name
    return SkillCopy(pack.folder, name, pack.digest)


def unchanged(
    skills: Sequence[ButlerSkill],
) -> tuple[list[ButlerSkill], list[tuple[ButlerSkill, SkillChanged]]]:
    """Those that are as registered, and those that are not, with what is wrong."""
    good: list[ButlerSkill] = []
    changed: list[tuple[ButlerSkill, SkillChanged]] = []
    for shelved in skills:
        try:
            shelved.verify()
        except SkillChanged as error:
            changed.append((shelved, error))
        else:
            good.append(shelved)
    return good, changed
