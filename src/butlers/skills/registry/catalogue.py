"""What is registered: every skill with its versions, as `registry/skills.json` keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from butlers.domain.errors import SkillNotFound, SkillRegistryBroken
from butlers.skills.names import is_id, is_version
from butlers.skills.versions import newest_first


class State(StrEnum):
    DRAFT = "draft"  # for its maker only, until a person approves
    APPROVED = "approved"


@dataclass(frozen=True, slots=True)
class Release:
    """One version. Its hash is over every file of its folder and never changes. ``origin`` is where it was
    installed from; none has what a butler made, or a person registered here."""

    version: str
    digest: str
    state: State
    registered_at: str
    dependencies: tuple[str, ...] = ()
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """One skill. ``releases`` has the newest version first."""

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
        approved = (one.version for one in self.releases.values() if one.state is State.APPROVED)
        return next(approved, None)

    def release(self, version: str | None) -> Release:
        found = self.releases.get(version or self.latest)
        if found is None:
            raise SkillNotFound(
                f"the skill {self.id} has no version {version}",
                hint=f"there are: {', '.join(self.versions)}",
            )
        return found

    def as_dict(self, used_by: Sequence[str]) -> dict[str, Any]:
        """The registry file's entry: the names every reader knows, and what each version is."""
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
class Catalogue:
    skills: Mapping[str, Registered] = field(default_factory=dict)

    def get(self, name: str) -> Registered:
        found = self.skills.get(name)
        if found is None:
            raise SkillNotFound(
                f"there is no skill {name!r}", hint="`butlers skills list` shows what is registered"
            )
        return found

    def with_skill(self, skill: Registered) -> Catalogue:
        return Catalogue({**self.skills, skill.id: skill})

    def without(self, name: str) -> Catalogue:
        return Catalogue({key: skill for key, skill in self.skills.items() if key != name})

    def render(self, used_by: Mapping[str, Sequence[str]]) -> bytes:
        entries = [self.skills[name].as_dict(used_by.get(name, ())) for name in sorted(self.skills)]
        return (json.dumps({"skills": entries}, indent=2, ensure_ascii=False) + "\n").encode()


def ordered(releases: Mapping[str, Release]) -> dict[str, Release]:
    return {version: releases[version] for version in newest_first(releases)}


def parse_catalogue(content: bytes, where: object) -> Catalogue:
    """The file as a Catalogue; whatever is not in order is an error that names it."""
    try:
        document = json.loads(content)
        entries = [_registered(entry) for entry in document["skills"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SkillRegistryBroken(
            f"{where}: not a registry of skills: {error!r}",
            hint="mend the file, or move it away and register the skills again",
        ) from error
    return Catalogue({entry.id: entry for entry in entries})


def _registered(entry: Mapping[str, Any]) -> Registered:
    name = entry["id"]
    releases = {version: _release(version, said) for version, said in entry["releases"].items()}
    if not is_id(name) or not releases:
        raise ValueError(f"the entry {name!r} has no usable id or no version")
    return Registered(
        id=name,
        owner=str(entry["owner"]),
        releases=ordered(releases),
        registered_at=str(entry["registeredAt"]),
        updated_at=str(entry["updatedAt"]),
    )


def _release(version: str, said: Mapping[str, Any]) -> Release:
    if not is_version(version):
        raise ValueError(f"{version!r} is no version")
    return Release(
        version=version,
        digest=str(said["hash"]),
        state=State(said["state"]),
        registered_at=str(said["registeredAt"]),
        dependencies=tuple(str(item) for item in said.get("dependencies", ())),
        origin=None if said.get("origin") is None else str(said["origin"]),
    )


def _release_dict(release: Release) -> dict[str, Any]:
    said: dict[str, Any] = {
        "hash": release.digest,
        "state": str(release.state),
        "registeredAt": release.registered_at,
    }
    if release.dependencies:
        said["dependencies"] = list(release.dependencies)
    if release.origin is not None:
        said["origin"] = release.origin
    return said
