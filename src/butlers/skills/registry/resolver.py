"""Which versions a butler gets: everything it names and all that depends on, at one version each.

The newest versions that fit together are taken. What can not be had together is explained by the chains
that lead to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from butlers.domain.errors import (
    SkillChanged,
    SkillConflict,
    SkillCycle,
    SkillNotFound,
    SkillUnresolved,
)
from butlers.skills.registry.catalogue import Catalogue, Registered, Release, State
from butlers.skills.versions import Requirement, parse_requirement

MAX_PACKS = 200  # of a butler, and that one of them needs
MAX_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requirement and who has it: the butler first, then pack after pack."""

    requirement: Requirement
    chain: tuple[str, ...]

    def __str__(self) -> str:
        return " → ".join((*self.chain, str(self.requirement)))


@dataclass(frozen=True, slots=True)
class Resolved:
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
    """``packs`` has each one after all it depends on."""

    butler: str
    requirements: tuple[str, ...]
    packs: tuple[Resolved, ...] = ()
    warnings: tuple[str, ...] = ()


def resolve(
    catalogue: Catalogue,
    butler: str,
    requirements: Sequence[str],
    locked: Mapping[str, Resolved] | None = None,
) -> Resolution:
    """What the butler's packs come to; ``locked`` ones are kept where they still fit.

    A draft is had by its maker only, and only where the maker's configuration names that very version.
    """
    wanted = []
    for written in requirements:
        requirement = parse_requirement(written)
        if requirement is None:
            raise SkillUnresolved(
                f"{butler}: {written!r} is not id, id@version or id@range",
                hint='such as "mail-tools@1.0.0" or "mail-tools@^1.2"',
            )
        wanted.append(Wanted(requirement, (butler,)))
    named = frozenset(str(one.requirement) for one in wanted if one.requirement.exact)
    solver = _Solver(catalogue, butler, named, locked or {})
    chosen = solver.solve(tuple(wanted), {})
    if chosen is None:
        raise solver.failure or SkillUnresolved()
    packs = tuple(_in_order(chosen))
    return Resolution(butler, tuple(requirements), packs, tuple(_warnings(chosen)))


@dataclass(slots=True)
class _Solver:
    """Depth first over the newest versions; the first thing that failed is the explanation."""

    catalogue: Catalogue
    butler: str
    named: frozenset[str]  # the exact versions of its configuration
    locked: Mapping[str, Resolved]
    failure: SkillUnresolved | SkillNotFound | None = None
    steps: int = 0

    def solve(
        self, pending: tuple[Wanted, ...], chosen: dict[str, _Choice]
    ) -> dict[str, _Choice] | None:
        """One level deeper for each pack that is chosen, of which there are at most MAX_PACKS."""
        for number, wanted in enumerate(pending, start=1):
            self._count(chosen)
            taken = chosen.get(wanted.requirement.name)
            if (circle := _circle(wanted)) is not None:
                self._fail(SkillCycle(f"packs depend on each other in a circle: {circle}"))
                return None
            if taken is None:
                return self._choose(wanted, pending[number:], chosen)
            if not wanted.requirement.holds(taken.release.version):
                self._fail(_conflict(taken, wanted))
                return None
        self._count(chosen)
        return chosen

    def _choose(
        self, wanted: Wanted, rest: tuple[Wanted, ...], chosen: dict[str, _Choice]
    ) -> dict[str, _Choice] | None:
        skill = self._skill(wanted)
        if skill is None:
            return None
        for release in self._candidates(skill, wanted):
            if len(release.dependencies) > MAX_PACKS:
                self._fail(
                    SkillUnresolved(
                        f"{skill.id}@{release.version} needs more than {MAX_PACKS} packs: {wanted}",
                        hint="let it need fewer; a butler has no more than that",
                    )
                )
                continue
            choice = _Choice(wanted, skill, release)
            found = self.solve((*choice.below(), *rest), {**chosen, skill.id: choice})
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

    def _skill(self, wanted: Wanted) -> Registered | None:
        skill = self.catalogue.skills.get(wanted.requirement.name)
        if skill is None:
            self._fail(
                SkillNotFound(
                    f"there is no skill {wanted.requirement.name}: {wanted}",
                    hint="`butlers skills list` shows what is registered",
                )
            )
        return skill

    def _candidates(self, skill: Registered, wanted: Wanted) -> Iterator[Release]:
        fitting = [
            release
            for release in skill.releases.values()
            if wanted.requirement.holds(release.version)
        ]
        usable = [
            release
            for release in fitting
            if release.state is State.APPROVED or self._names_its_own(skill, release)
        ]
        if not fitting:
            self._fail(
                SkillNotFound(
                    f"no version of {skill.id} fits: {wanted}",
                    hint=f"there are: {', '.join(skill.versions)}",
                )
            )
        elif not usable:
            label = f"{skill.id}@{fitting[0].version}"
            self._fail(
                SkillUnresolved(
                    f"{label} is a draft of {skill.owner}: {wanted}",
                    hint=f"`butlers skills approve {label}` first: a draft is its maker's only",
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
                    hint="find out who changed it; then remove the lock to take what is registered",
                )
            yield release

    def _names_its_own(self, skill: Registered, release: Release) -> bool:
        return skill.owner == self.butler and f"{skill.id}@{release.version}" in self.named

    def _fail(self, failure: SkillUnresolved | SkillNotFound) -> None:
        self.failure = self.failure or failure


@dataclass(frozen=True, slots=True)
class _Choice:
    wanted: Wanted
    skill: Registered
    release: Release

    def below(self) -> tuple[Wanted, ...]:
        """What this choice needs in turn."""
        chain = (*self.wanted.chain, f"{self.skill.id}@{self.release.version}")
        needed = map(parse_requirement, self.release.dependencies)
        return tuple(Wanted(requirement, chain) for requirement in needed if requirement)


def _conflict(taken: _Choice, wanted: Wanted) -> SkillConflict:
    there = ", ".join(taken.skill.versions)
    return SkillConflict(
        f"no version of {taken.skill.id} fits both: {taken.wanted}; and {wanted}",
        hint=f"there are: {there}; change one of the two, a butler has one version of each pack",
    )


def _circle(wanted: Wanted) -> str | None:
    names = [label.partition("@")[0] for label in wanted.chain[1:]]
    if wanted.requirement.name not in names:
        return None
    start = names.index(wanted.requirement.name) + 1
    return " → ".join((*wanted.chain[start:], str(wanted.requirement)))


def _in_order(chosen: Mapping[str, _Choice]) -> Iterator[Resolved]:
    done: set[str] = set()

    def visit(name: str) -> Iterator[Resolved]:
        if name in done:
            return
        done.add(name)
        choice = chosen[name]
        for needed in choice.below():
            yield from visit(needed.requirement.name)
        yield Resolved(
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
                f"{choice.wanted} has no version: the latest, {choice.release.version}, is used;"
                f' write "{requirement.name}@{choice.release.version}" to keep it'
            )
