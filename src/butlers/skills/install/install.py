"""Install skills from folders, archives and git: copy, check, ask for consent, then register."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import (
    InvalidSkill,
    SkillConsentMissing,
    SkillNotFound,
    SkillOwnerMismatch,
)
from butlers.skills.check.rules import check
from butlers.skills.findings import printable
from butlers.skills.install.archive import unpack
from butlers.skills.install.capabilities import (
    Capabilities,
    Difference,
    capabilities_of,
    difference,
)
from butlers.skills.install.git import GitSource, fetch
from butlers.skills.names import slug
from butlers.skills.reader import read_skill
from butlers.skills.registry import packs
from butlers.skills.registry.catalog import RegisteredSkill, Release
from butlers.skills.registry.registry import NewSkill, SkillRegistry
from butlers.skills.skill import BUILT_IN, SkillSpec

_ARCHIVES = (".zip", ".skill", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class InstallOffer:
    """A skill before its installation.

    ``change`` compares its capabilities with ``before``, the newest approved version; nobody agreed to
    those of a draft. ``moved`` explains why ``origin`` differs from the origin of ``before``.
    """

    skill: SkillSpec
    owner: str
    origin: str
    capabilities: Capabilities
    diagnostics: tuple[Diagnostic, ...]
    change: Difference | None = None
    before: str | None = None
    is_update: bool = False
    moved: str | None = None

    @property
    def needs_consent(self) -> bool:
        return self.change is None or self.change.widens or self.moved is not None


@dataclass(frozen=True, slots=True)
class RegistryInstaller:
    """``owner`` and ``version`` apply if the skill names none."""

    registry: SkillRegistry
    owner: str
    version: str | None = None

    def install(
        self,
        source: Path | GitSource,
        agrees: Callable[[InstallOffer], bool],
        show: Callable[[InstallOffer], None] = lambda offer: None,
    ) -> RegisteredSkill:
        """Show the offer, ask for consent if it needs any, and register the skill.

        An update with no new capability and from the same origin needs no consent.
        """
        origin = _origin(source)
        with _private_copy(source) as folder:
            offer = self.offer(folder, origin)
            show(offer)
            if offer.needs_consent and not agrees(offer):
                why = offer.moved or "its capabilities were not agreed to"
                raise SkillConsentMissing(
                    f"{offer.skill.label} was not installed: {why}",
                    hint="add --yes to agree without being asked",
                )
            new = NewSkill(folder, owner=self.owner, version=self.version, origin=origin)
            return self.registry.update(new) if offer.is_update else self.registry.register(new)

    def offer(self, folder: Path, origin: str) -> InstallOffer:
        checked = check(folder)
        if checked.skill is None or not checked.valid:
            raise InvalidSkill(
                f"{folder.name} cannot be installed:",
                diagnostics=checked.errors_in(Path(folder.name)),
                hint="its author must fix it; `butlers skills check` shows everything",
            )
        skill, owner = checked.skill, checked.skill.owner or self.owner
        self._refuse_owner(skill.name, owner)
        offered = capabilities_of(folder, skill)
        registered = self._registered(skill.name)
        before = None if registered is None else registered.latest_approved
        if registered is None or before is None:
            known = registered is not None
            return InstallOffer(skill, owner, origin, offered, checked.diagnostics, is_update=known)
        path = self.registry.path(registered.id, before)
        installed = read_skill(path).skill
        assert installed is not None, "a registered version is valid and unchanged"
        change = difference(capabilities_of(path, installed), offered)
        moved = _moved(origin, registered.release(before))
        return InstallOffer(
            skill, owner, origin, offered, checked.diagnostics, change, before, True, moved
        )

    def _refuse_owner(self, name: str, owner: str) -> None:
        """Raise if the skill claims an owner that is trusted more than its source."""
        if owner == BUILT_IN:
            claim = "to be built in"
        elif owner in self.registry.packs_of():
            claim = f"to belong to the butler {owner}"
        else:
            return
        raise SkillOwnerMismatch(
            f"{name} claims {claim}, but it comes from an outside source",
            hint="name its author in the manifest; `butlers skills assign` gives it to a butler",
        )

    def _registered(self, name: str) -> RegisteredSkill | None:
        try:
            return self.registry.get(name)
        except SkillNotFound:
            return None


def _origin(source: Path | GitSource) -> str:
    return source.origin if isinstance(source, GitSource) else printable(str(source.resolve()))


def _moved(origin: str, before: Release) -> str | None:
    """Explain a change of origin: the same name may be another author's skill."""
    if before.origin == origin:
        return None
    there = f"came from {before.origin}" if before.origin else "was registered from a local folder"
    return f"it comes from {origin}, but {before.version} {there}"


@contextmanager
def _private_copy(source: Path | GitSource) -> Iterator[Path]:
    """Yield a copy that nobody can change between consent and registration."""
    with tempfile.TemporaryDirectory(prefix="butlers-skill-") as scratch:
        if isinstance(source, GitSource):
            folder = fetch(source, Path(scratch))
        elif source.is_dir():
            folder = Path(scratch) / source.resolve().name
            folder.mkdir()
            packs.copy_skill(source.resolve(), folder)
        else:
            folder = Path(scratch) / _stem(source)
            folder.mkdir()
            folder = unpack(source, folder)
        yield folder


def _stem(archive: Path) -> str:
    suffix = next((suffix for suffix in _ARCHIVES if archive.name.endswith(suffix)), "")
    return slug(archive.name.removesuffix(suffix)) or "skill"
