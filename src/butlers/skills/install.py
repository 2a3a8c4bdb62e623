"""Skills from elsewhere: copied to a private place, looked at, agreed to, and only then registered."""

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
from butlers.skills import packs
from butlers.skills.archive import unpack
from butlers.skills.capabilities import Capabilities, Difference, capabilities_of, difference
from butlers.skills.catalogue import Registered
from butlers.skills.git import GitSource, fetch
from butlers.skills.names import slug
from butlers.skills.reader import read_skill
from butlers.skills.registry import NewSkill, SkillRegistry
from butlers.skills.rules import check
from butlers.skills.skill import BUILT_IN, Skill

_ARCHIVES = (".zip", ".skill", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be installed. ``change`` compares with ``before``, the newest version that a person has
    approved: what a draft could do, nobody has agreed to."""

    skill: Skill
    capabilities: Capabilities
    diagnostics: tuple[Diagnostic, ...]
    change: Difference | None = None
    before: str | None = None
    is_update: bool = False

    @property
    def needs_consent(self) -> bool:
        return self.change is None or self.change.widens


@dataclass(frozen=True, slots=True)
class Installer:
    """``owner`` and ``version`` serve where the skill names none."""

    registry: SkillRegistry
    owner: str
    version: str | None = None

    def install(
        self,
        source: Path | GitSource,
        agrees: Callable[[Offer], bool],
        show: Callable[[Offer], None] = lambda offer: None,
    ) -> Registered:
        """Register what the source holds, if whoever is asked agrees to what it could do. It is shown in any
        case; an update that can do no more than before is not asked about."""
        with _private_copy(source) as folder:
            offer = self.offer(folder)
            show(offer)
            if offer.needs_consent and not agrees(offer):
                raise SkillConsentMissing(
                    f"{offer.skill.label} was not installed: nobody agreed to what it could do",
                    hint="add --yes to agree without being asked",
                )
            new = NewSkill(folder, owner=self.owner, version=self.version)
            return self.registry.update(new) if offer.is_update else self.registry.register(new)

    def offer(self, folder: Path) -> Offer:
        checked = check(folder)
        if checked.skill is None or not checked.valid:
            raise InvalidSkill(
                f"{folder.name} can not be installed:",
                diagnostics=checked.errors_in(Path(folder.name)),
                hint="only its author can mend it; `butlers skills check` shows everything",
            )
        skill = checked.skill
        if skill.owner == BUILT_IN:
            raise SkillOwnerMismatch(
                f"{skill.name} says that it is built in, and comes from elsewhere",
                hint="let its manifest name who made it",
            )
        offered = capabilities_of(folder, skill)
        registered = self._registered(skill.name)
        before = None if registered is None else registered.latest_approved
        if registered is None or before is None:
            return Offer(skill, offered, checked.diagnostics, is_update=registered is not None)
        path = self.registry.path(registered.id, before)
        known = read_skill(path).skill
        assert known is not None, "what was registered was valid, and is unchanged"
        change = difference(capabilities_of(path, known), offered)
        return Offer(skill, offered, checked.diagnostics, change, before, is_update=True)

    def _registered(self, name: str) -> Registered | None:
        try:
            return self.registry.get(name)
        except SkillNotFound:
            return None


@contextmanager
def _private_copy(source: Path | GitSource) -> Iterator[Path]:
    """What is agreed to is what is registered: nobody else can change it in between."""
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
