"""Who uses a skill: derived from what the configurations name, never written down by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from butlers.skills.registry.catalogue import Catalogue, Registered, Release, State
from butlers.skills.versions import Requirement, parse_requirement


@dataclass(frozen=True, slots=True)
class Usage:
    """``packs`` has the requirements of each butler, such as ``("mail-tools@^1",)``."""

    catalogue: Catalogue
    packs: Mapping[str, Sequence[str]]

    def butlers(self, name: str) -> tuple[str, ...]:
        """The butlers that name this skill, in whichever version."""
        return self.all().get(name, ())

    def all(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for butler, requirement in self._requirements():
            found.setdefault(requirement.name, {})[butler] = None
        return {name: tuple(sorted(butlers)) for name, butlers in found.items()}

    def users(self, name: str, version: str) -> tuple[str, ...]:
        """The butlers whose next load would take this version."""
        skill = self.catalogue.get(name)
        return tuple(
            butler
            for butler, requirement in self._requirements()
            if requirement.name == name and best(skill, requirement) == version
        )

    def _requirements(self) -> Iterator[tuple[str, Requirement]]:
        for butler, written in self.packs.items():
            for pack in written:
                requirement = parse_requirement(pack)
                if requirement is not None:
                    yield butler, requirement


def best(skill: Registered, requirement: Requirement) -> str | None:
    """The newest registered version that the requirement takes."""
    taken = (release.version for release in skill.releases.values() if takes(requirement, release))
    return next(taken, None)


def takes(requirement: Requirement, release: Release) -> bool:
    """A draft is taken by its exact version only."""
    usable = release.state is State.APPROVED or requirement.exact is not None
    return usable and requirement.holds(release.version)


def dependents(catalogue: Catalogue, name: str, version: str, gone: Sequence[str]) -> Iterator[str]:
    """Registered skills that would be left without this dependency if ``gone`` were removed."""
    skill = catalogue.get(name)
    for other in catalogue.skills.values():
        for release in other.releases.values():
            if other.id == name and release.version in gone:
                continue
            for written in release.dependencies:
                requirement = parse_requirement(written)
                if requirement is None or requirement.name != name:
                    continue
                rest = [found for key, found in skill.releases.items() if key not in gone]
                if takes(requirement, skill.release(version)) and not any(
                    takes(requirement, found) for found in rest
                ):
                    yield f"{other.id}@{release.version}"
