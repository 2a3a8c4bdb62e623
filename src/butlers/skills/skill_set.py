"""All skills of one butler: from its own folder, from its configuration, and made by its sessions."""

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
from butlers.skills.reader import read_skill, scan_skills
from butlers.skills.reflexes.book import FILE_NAME as REFLEX_FILE
from butlers.skills.registry import packs
from butlers.skills.registry.butler_packs import FailedPack, LoadedPack, LoadResult, load_packs
from butlers.skills.registry.catalog import RegisteredSkill, SkillState
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.registry.resolver import LOCK_FILE, read_lock
from butlers.skills.requirements import with_wanted_variables
from butlers.skills.skill import Pack, SkillSpec

log = structlog.get_logger()

FOLDER = "skills"
CUSTOM = "custom"  # subfolder for skills that sessions make


class SkillOrigin(StrEnum):
    OWN = "own"  # a person put it into the butler's folder
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
        """Raise SkillChanged if a registered skill has changed. A butler's own skill may change."""
        if self.pack.digest is not None:
            packs.verify(self.pack.folder, self.pack.digest)


@dataclass(slots=True)
class ButlerSkillSet:
    """``directory`` is the butler's folder. The packs of its configuration are loaded once, at start."""

    registry: SkillRegistry
    butler: str
    directory: Path
    load_result: LoadResult = field(default_factory=LoadResult)

    @classmethod
    def open(
        cls, registry: SkillRegistry, butler: str, directory: Path, requirements: Sequence[str]
    ) -> ButlerSkillSet:
        """Load the packs. Packs that cannot be loaded are in ``load_result.failed``."""
        skill_set = cls(registry, butler, directory)
        try:
            locked = read_lock(directory / LOCK_FILE)
            result = load_packs(registry, butler, requirements, locked)
        except SkillError as error:  # the registry or the lock file itself
            result = LoadResult(failed=tuple(FailedPack(wanted, error) for wanted in requirements))
        skill_set.load_result = skill_set._without_name_clashes(result)
        return skill_set

    @property
    def shared(self) -> Path:
        """The roster's shared skills, into which links of a butler's folder may point."""
        return self.directory.parent / "shared" / FOLDER

    @property
    def custom(self) -> Path:
        return self.directory / FOLDER / CUSTOM

    @property
    def needs_tools(self) -> bool:
        """True if sessions need the skill tools: to use a skill, or to make one."""
        return bool(self.provided() or self._allows_new_skills())

    def packs(self) -> tuple[ButlerSkill, ...]:
        """Return the packs of the configuration, each after its dependencies."""
        return tuple(
            ButlerSkill(
                Pack(loaded.folder, loaded.skill, loaded.resolved.digest),
                SkillOrigin.PACK,
                loaded.draft and self._is_still_a_draft(loaded),
            )
            for loaded in self.load_result.packs
        )

    def provided(self) -> tuple[ButlerSkill, ...]:
        """Return the skills that people provided: packs, and skills of the butler's own folder."""
        return _unique_names((*self.packs(), *self._own()))

    def skills(self) -> tuple[ButlerSkill, ...]:
        """Return all skills, each name once. A skill that a session made never hides another."""
        return _unique_names((*self.provided(), *self._made_or_none()))

    def skills_and_drafts(self) -> tuple[ButlerSkill, ...]:
        """Return all skills, and drafts of newer versions, which are found by exact version only."""
        known = self.skills()
        labels = {entry.skill.label for entry in known}
        drafts = (made for made in self._made_or_none() if made.draft)
        return (*known, *(made for made in drafts if made.skill.label not in labels))

    def failed(self) -> tuple[FailedPack, ...]:
        """Return the packs that failed, and one entry if the registry cannot be read."""
        try:
            self.registry.catalog()
        except SkillError as error:
            failed = FailedPack("skills that this butler made", error)
            return (*self.load_result.failed, failed)
        return self.load_result.failed

    def find(self, name: str) -> ButlerSkill:
        """Find a skill by name, `name@version`, folder name, or the key that a prompt shows."""
        wanted, _at, version = name.removeprefix(f"{FOLDER}.").partition("@")
        for entry in chain(self.provided(), self._made()):
            known = {entry.name, entry.pack.folder.name.partition("@")[0]}
            if wanted in known and version in ("", entry.skill.version):
                return entry
        for failed in self.load_result.failed:
            if failed.wanted.partition("@")[0] == wanted:
                raise failed.error
        available = ", ".join(sorted(entry.name for entry in self.skills())) or "none"
        raise SkillNotFound(f"there is no skill {name!r}", hint=f"available: {available}")

    def mount(self, home: Path) -> tuple[Path, ...]:
        """Copy the skills to the folders below HOME where the CLIs look. Return the folders."""
        copies = [_copy_of(entry) for entry in self.skills()]
        folders = (home / CLAUDE_FOLDER, home / AGENTS_FOLDER)
        return tuple(folder for folder in folders if self._mount_into(folder, copies))

    def _mount_into(self, folder: Path, copies: Sequence[SkillCopy]) -> bool:
        """Return True if any skill was copied. A skill that cannot be copied is logged and skipped."""
        mounted = False
        for copy in copies:
            try:
                SkillInstaller(folder, self.shared).install([copy])
            except SkillInstallationError as error:
                log.warning("skill not mounted", skill=copy.name, error=error.message)
            else:
                mounted = True
        return mounted

    def _allows_new_skills(self) -> bool:
        """Return True if sessions may make skills: not where the folder holds only reflexes."""
        folder = self.directory / FOLDER
        if self.custom.is_dir():
            return True
        return folder.is_dir() and not any(folder.glob(f"*/{REFLEX_FILE}"))

    def _is_still_a_draft(self, loaded: LoadedPack) -> bool:
        """Return False if a person has approved the version since the butler's start."""
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
                skill = with_wanted_variables(found.reading.skill)
                pack = Pack(found.folder, skill, None, self.shared)
                yield ButlerSkill(pack, SkillOrigin.OWN)

    def _made_or_none(self) -> tuple[ButlerSkill, ...]:
        """Return the skills that sessions made; none if the registry cannot be read."""
        try:
            return tuple(self._made())
        except SkillError as error:
            log.warning("skills made by the butler are unavailable", error=error.message)
            return ()

    def _made(self) -> Iterator[ButlerSkill]:
        for registered in self.registry.catalog().skills.values():
            if registered.owner == self.butler:
                yield from self._versions_made(registered)

    def _versions_made(self, registered: RegisteredSkill) -> Iterator[ButlerSkill]:
        """Yield the newest approved version, then the newest version if it is a draft."""
        # An installed skill may claim any owner; a butler has it only through its configuration.
        own = [release for release in registered.releases.values() if release.origin is None]
        approved = [release for release in own if release.state is SkillState.APPROVED]
        drafts = [release for release in own[:1] if release.state is SkillState.DRAFT]
        for release in (*approved[:1], *drafts):
            folder = packs.pack_path(
                self.registry.home, registered.id, release.version, registered.owner
            )
            skill = read_skill(folder).skill
            if skill is not None:
                pack = Pack(folder, release.with_grants(skill), release.digest)
                yield ButlerSkill(pack, SkillOrigin.MADE, release.state is SkillState.DRAFT)

    def _without_name_clashes(self, result: LoadResult) -> LoadResult:
        """Fail packs whose name a skill of the butler's own folder has."""
        own = {entry.name for entry in self._own()}
        taken = [loaded for loaded in result.packs if loaded.id in own]
        if not taken:
            return result
        failed = tuple(
            FailedPack(loaded.label, SkillTaken(f"the butler's own folder has a skill {loaded.id}"))
            for loaded in taken
        )
        kept = tuple(loaded for loaded in result.packs if loaded not in taken)
        return replace(result, packs=kept, failed=(*result.failed, *failed))


def _unique_names(skills: Iterable[ButlerSkill]) -> tuple[ButlerSkill, ...]:
    found: dict[str, ButlerSkill] = {}
    for entry in skills:
        found.setdefault(entry.name, entry)
    return tuple(found.values())


def _copy_of(entry: ButlerSkill) -> SkillCopy:
    pack = entry.pack
    name = pack.folder.name if entry.origin is SkillOrigin.OWN else entry.name
    return SkillCopy(pack.folder, name, pack.digest)


def split_changed(
    skills: Sequence[ButlerSkill],
) -> tuple[list[ButlerSkill], list[tuple[ButlerSkill, SkillChanged]]]:
    """Return the skills that have their registered hash, and the changed ones with their error."""
    unchanged: list[ButlerSkill] = []
    changed: list[tuple[ButlerSkill, SkillChanged]] = []
    for entry in skills:
        try:
            entry.verify()
        except SkillChanged as error:
            changed.append((entry, error))
        else:
            unchanged.append(entry)
    return unchanged, changed
