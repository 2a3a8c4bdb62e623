"""The contents of `registry/skills.json`: every registered skill with its versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from butlers.domain.errors import SkillNotFound, SkillRegistryBroken
from butlers.skills.names import is_id, is_version
from butlers.skills.skill import SkillSpec
from butlers.skills.versions import newest_first


class SkillState(StrEnum):
    DRAFT = "draft"  # usable by the butler that made it, until a person approves it
    APPROVED = "approved"


@dataclass(frozen=True, slots=True)
class Release:
    """One version with the hash of its folder, which never changes.

    ``origin`` is the address that it was installed from, ``commit`` the commit there; None for a version
    that a butler made or a person registered from a folder. ``granted`` are the variables that a person
    gave it in addition to those that it declares.
    """

    version: str
    digest: str
    state: SkillState
    registered_at: str
    dependencies: tuple[str, ...] = ()
    origin: str | None = None
    commit: str | None = None
    granted: tuple[str, ...] = ()

    def with_grants(self, skill: SkillSpec) -> SkillSpec:
        """Return the skill with the granted variables among those that it declares."""
        declared = tuple(dict.fromkeys((*skill.env_vars, *self.granted)))
        return skill if declared == skill.env_vars else skill.evolve(env_vars=declared)


@dataclass(frozen=True, slots=True)
class RegisteredSkill:
    """One skill. ``releases`` starts with the newest version."""

    id: str
    owner: str
    releases: Mapping[str, Release]
    registered_at: str
    updated_at: str

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self.releases)

    @property
    def latest(self) -> str:
        return next(iter(self.releases))

    @property
    def latest_approved(self) -> str | None:
        approved = (
            one.version for one in self.releases.values() if one.state is SkillState.APPROVED
        )
        return next(approved, None)

    def release(self, version: str | None) -> Release:
        found = self.releases.get(version or self.latest)
        if found is None:
            raise SkillNotFound(
                f"skill {self.id} has no version {version}",
                hint=f"available: {', '.join(self.versions)}",
            )
        return found

    def as_dict(self, used_by: Sequence[str]) -> dict[str, Any]:
        """Return the entry of the registry file."""
        return {
            "id": self.id,
            "versions": list(self.versions),
            "latestVersion": self.latest,
            "owner": self.owner,
            "usedBy": list(used_by),
            "registeredAt": self.registered_at,
            "updatedAt": self.updated_at,
            "releases": {version: _release_dict(found) for version, found in self.releases.items()},
        }


@dataclass(frozen=True, slots=True)
class SkillCatalog:
    skills: Mapping[str, RegisteredSkill] = field(default_factory=dict)

    def get(self, name: str) -> RegisteredSkill:
        found = self.skills.get(name)
        if found is None:
            raise SkillNotFound(
                f"there is no skill {name!r}",
                hint="`butlers skills list` shows all registered skills",
            )
        return found

    def with_skill(self, skill: RegisteredSkill) -> SkillCatalog:
        return SkillCatalog({**self.skills, skill.id: skill})

    def without(self, name: str) -> SkillCatalog:
        return SkillCatalog({key: skill for key, skill in self.skills.items() if key != name})

    def render(self, used_by: Mapping[str, Sequence[str]]) -> bytes:
        entries = [self.skills[name].as_dict(used_by.get(name, ())) for name in sorted(self.skills)]
        return (json.dumps({"skills": entries}, indent=2, ensure_ascii=False) + "\n").encode()


def ordered(releases: Mapping[str, Release]) -> dict[str, Release]:
    """Sort from the newest version; of versions with the same precedence the first stays first."""
    return {version: releases[version] for version in newest_first(releases)}


def parse_catalog(content: bytes, where: object) -> SkillCatalog:
    """Parse the registry file. Raise SkillRegistryBroken if it is invalid."""
    try:
        document = json.loads(content)
        entries = [_registered(entry) for entry in document["skills"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SkillRegistryBroken(
            f"{where}: invalid registry of skills: {error!r}",
            hint="repair the file, or move it away and register the skills again",
        ) from error
    return SkillCatalog({entry.id: entry for entry in entries})


def _registered(entry: Mapping[str, Any]) -> RegisteredSkill:
    name = entry["id"]
    releases = {version: _release(version, found) for version, found in entry["releases"].items()}
    if not is_id(name) or not releases:
        raise ValueError(f"the entry {name!r} has an invalid id or no version")
    return RegisteredSkill(
        id=name,
        owner=str(entry["owner"]),
        releases=ordered(releases),
        registered_at=str(entry["registeredAt"]),
        updated_at=str(entry["updatedAt"]),
    )


def _release(version: str, entry: Mapping[str, Any]) -> Release:
    if not is_version(version):
        raise ValueError(f"{version!r} is not a valid version")
    return Release(
        version=version,
        digest=str(entry["hash"]),
        state=SkillState(entry["state"]),
        registered_at=str(entry["registeredAt"]),
        dependencies=tuple(str(item) for item in entry.get("dependencies", ())),
        origin=None if entry.get("origin") is None else str(entry["origin"]),
        granted=tuple(str(item) for item in entry.get("granted", ())),
        commit=None if entry.get("commit") is None else str(entry["commit"]),
    )


def _release_dict(release: Release) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "hash": release.digest,
        "state": str(release.state),
        "registeredAt": release.registered_at,
    }
    if release.dependencies:
        entry["dependencies"] = list(release.dependencies)
    if release.origin is not None:
        entry["origin"] = release.origin
    if release.granted:
        entry["granted"] = list(release.granted)
    if release.commit is not None:
        entry["commit"] = release.commit
    return entry
