"""Install skills from folders, archives and git: copy, check, ask for consent, then register."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import (
    SkillConsentMissing,
    SkillOwnerMismatch,
)
from butlers.skills.install.capabilities import (
    Capabilities,
    Difference,
    capabilities_of,
    difference,
)
from butlers.skills.install.collection import CollectionSkill
from butlers.skills.install.permissions import Permission, permissions_of
from butlers.skills.install.source import OpenedSource, SkillAddress, open_source
from butlers.skills.reader import read_skill
from butlers.skills.registry.catalog import RegisteredSkill, Release
from butlers.skills.registry.new_skill import NewSkill, StagedSkill
from butlers.skills.registry.registry import SkillRegistry, kept_grants
from butlers.skills.skill import BUILT_IN, SkillSpec


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
    permissions: tuple[Permission, ...] = ()
    is_update: bool = False
    moved: str | None = None
    commit: str | None = None

    @property
    def needs_consent(self) -> bool:
        return self.change is None or self.change.widens or self.moved is not None


@dataclass(frozen=True, slots=True)
class RegistryInstaller:
    """``owner`` and ``version`` apply if the skill names none; ``name`` replaces its name, and ``env_vars``
    are declared in addition."""

    registry: SkillRegistry
    owner: str
    version: str | None = None
    name: str | None = None
    env_vars: tuple[str, ...] = ()

    def install(
        self,
        source: SkillAddress,
        agrees: Callable[[InstallOffer], bool],
        show: Callable[[InstallOffer], None] = lambda offer: None,
    ) -> RegisteredSkill:
        """Show the offer, ask for consent if it needs any, and register the skill.

        Everything that could refuse it is checked before the question. An update with no new capability
        and from the same origin needs no consent.
        """
        with open_source(source) as opened:
            return self.install_one(opened, CollectionSkill(), agrees, show)

    def install_one(
        self,
        source: OpenedSource,
        skill: CollectionSkill,
        agrees: Callable[[InstallOffer], bool],
        show: Callable[[InstallOffer], None] = lambda offer: None,
    ) -> RegisteredSkill:
        """Install one skill of an opened source."""
        with self.registry.staged(self._new(source, skill)) as staged:
            offer = self.offer(staged)
            show(offer)
            if offer.needs_consent and not agrees(offer):
                why = offer.moved or "its capabilities were not agreed to"
                raise SkillConsentMissing(
                    f"{offer.skill.label} was not installed: {why}",
                    hint="add --yes to agree without being asked",
                )
            return self.registry.add(staged, update=offer.is_update)

    def _new(self, source: OpenedSource, skill: CollectionSkill) -> NewSkill:
        return NewSkill(
            source.folder(skill.path),
            owner=self.owner,
            version=self.version,
            origin=source.origin(skill.path),
            commit=source.commit,
            name=self.name,
            env_vars=self.env_vars,
            base_version=(skill.version or "").partition("+")[0] or None,
        )

    def offer(self, staged: StagedSkill) -> InstallOffer:
        """Return what would be installed. Raise for every reason to refuse it."""
        skill, origin = staged.skill, staged.new.origin or ""
        owner = skill.owner or self.owner
        self._refuse_owner(skill.name, owner)
        self.registry.refuse_conflict(staged)
        registered = self.registry.catalog().skills.get(skill.name)
        compared = compare(self.registry, staged)
        return InstallOffer(
            skill=skill,
            owner=owner,
            origin=origin,
            capabilities=compared.offered,
            diagnostics=staged.diagnostics,
            change=compared.change,
            before=compared.before,
            permissions=compared.permissions,
            is_update=registered is not None,
            moved=compared.moved,
            commit=staged.new.commit,
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


@dataclass(frozen=True, slots=True)
class ComparedSkill:
    """Capabilities of a staged skill beside those of ``before``, the newest approved version."""

    offered: Capabilities
    permissions: tuple[Permission, ...]
    before: str | None = None
    change: Difference | None = None
    moved: str | None = None


def compare(registry: SkillRegistry, staged: StagedSkill) -> ComparedSkill:
    """Compare with the newest approved version. Raise SkillChanged if its files were changed."""
    skill, origin = staged.skill, staged.new.origin
    registered = registry.catalog().skills.get(skill.name)
    granted = kept_grants(registered, origin)
    given = skill.evolve(env_vars=tuple(dict.fromkeys((*skill.env_vars, *granted))))
    offered = capabilities_of(staged.folder, given)
    before = None if registered is None else registered.latest_approved
    if registered is None or before is None:
        return ComparedSkill(offered, permissions_of(offered))
    path = registry.path(registered.id, before)
    installed = read_skill(path).skill
    assert installed is not None, "a registered version is valid and unchanged"
    release = registered.release(before)
    known = capabilities_of(path, release.with_grants(installed))
    moved = _moved(origin, release) if origin is not None else None
    return ComparedSkill(
        offered, permissions_of(offered, known), before, difference(known, offered), moved
    )


def _moved(origin: str, before: Release) -> str | None:
    """Explain a change of origin: the same name may be another author's skill."""
    if before.origin == origin:
        return None
    there = f"came from {before.origin}" if before.origin else "was registered from a local folder"
    return f"it comes from {origin}, but {before.version} {there}"
