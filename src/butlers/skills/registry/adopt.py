"""Adopt a skill into the registry: give it an id, a version and fields that a pack can have.

Most public skills have no version, and many a name or a description that a pack cannot have. None of this
is a reason to refuse them: SKILL.md stays as its author wrote it, and the registered manifest is valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import InvalidArguments
from butlers.domain.json_safe import freeze
from butlers.skills import names
from butlers.skills.findings import Findings, printable, quoted
from butlers.skills.formats.base import split_tools
from butlers.skills.formats.strict import is_plain
from butlers.skills.requirements import with_wanted_variables
from butlers.skills.skill import SkillSpec

UNVERSIONED = "0.0.0"  # with digits of the folder's hash as build
_HASH_DIGITS = 12
_MAX_TITLE = 200
# Folder names that say nothing about the skill inside.
_GENERIC = frozenset({"skill", "skills", "src", "main", "master"})
# Levels around a value of metadata or extra in the lists that are written.
_DEPTH = 2


@dataclass(frozen=True, slots=True)
class AdoptionTerms:
    """Choices of the one who registers. ``name`` replaces the skill's name; ``owner`` and ``version``
    apply if it has none, ``base_version`` with the hash of its content; ``env_vars`` are declared in
    addition."""

    name: str | None = None
    version: str | None = None
    owner: str | None = None
    env_vars: tuple[str, ...] = ()
    base_version: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not names.is_id(self.name):
            raise InvalidArguments(
                f"{quoted(self.name)} is not a valid name",
                hint="use lower-case words joined by single hyphens",
            )
        for name in self.env_vars:
            require_variable(name)


def require_variable(name: str) -> None:
    """Raise InvalidArguments unless a skill may get a variable of this name."""
    if names.ENV_NAME.fullmatch(name) is None or names.is_reserved_variable(name):
        raise InvalidArguments(
            f"{quoted(name)} is not a variable that a skill may get", hint="such as API_KEY"
        )


@dataclass(frozen=True, slots=True)
class Adopted:
    """A skill that can be registered, and the changes that made it so."""

    skill: SkillSpec
    notes: tuple[Diagnostic, ...] = ()


def adopt(skill: SkillSpec, folder: Path, digest: str, terms: AdoptionTerms) -> Adopted:
    """Return the skill as a pack. ``digest`` is the hash of its folder."""
    findings = Findings(folder)
    name = terms.name or _name(skill, folder.name, digest, findings)
    adopted = skill.evolve(
        name=name,
        title=skill.title or ("" if name == skill.name else printable(skill.name)[:_MAX_TITLE]),
        version=_version(skill, digest, terms, findings),
        owner=skill.owner or terms.owner,
        env_vars=tuple(dict.fromkeys((*_declared(skill), *terms.env_vars))),
        **_fitting_fields(skill, findings),
    )
    return Adopted(adopted, tuple(findings.diagnostics))


def _name(skill: SkillSpec, folder: str, digest: str, findings: Findings) -> str:
    if names.is_id(skill.name):
        return skill.name
    name = next(_names_for(skill, folder.partition("@")[0], digest))
    findings.add(
        "registered-name",
        f"{quoted(skill.name)} is registered as {name}",
        hint="--name gives it another name",
    )
    return name


def _names_for(skill: SkillSpec, folder: str, digest: str) -> Iterator[str]:
    """Yield names from best to worst."""
    if names.is_id(folder) and folder not in _GENERIC:
        yield folder
    for written in (skill.name, folder):
        if found := names.slug(written):
            yield found
    yield f"skill-{_digits(digest)}"


def _version(skill: SkillSpec, digest: str, terms: AdoptionTerms, findings: Findings) -> str:
    version = names.lenient_version(skill.version) if skill.version else None
    version = version or terms.version
    if version is None:
        version = f"{terms.base_version or UNVERSIONED}+{_digits(digest)}"
        missing = f"{quoted(skill.version)} is no version" if skill.version else "no version"
        findings.add(
            "registered-version",
            f"{missing}; registered as {version}, after the content",
            hint="--version gives it another version",
        )
    return version


def _declared(skill: SkillSpec) -> tuple[str, ...]:
    """Return the declared variables; a SKILL.md without a manifest declares them in its metadata."""
    return skill.env_vars if skill.has_manifest else with_wanted_variables(skill).env_vars


def _digits(digest: str) -> str:
    return digest.partition(":")[2][:_HASH_DIGITS]


def _fitting_fields(skill: SkillSpec, findings: Findings) -> dict[str, Any]:
    """Return the fields that a manifest cannot have as they are, shortened or without odd values."""
    fitting: dict[str, Any] = {
        "description": _cut(skill.description, names.MAX_DESCRIPTION),
        "license": skill.license or None,
        "compatibility": _cut(skill.compatibility or "", names.MAX_COMPATIBILITY) or None,
        "allowed_tools": _words(skill.allowed_tools),
        "metadata": _plain(skill.metadata),
        "extra": _plain(skill.extra),
    }
    changed = [name for name, value in fitting.items() if value != getattr(skill, name)]
    if changed:
        findings.add(
            "registered-fields",
            f"shortened or left out in the registered manifest: {', '.join(changed)}",
        )
    return fitting


def _cut(text: str, limit: int) -> str:
    text = text.strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _words(tools: tuple[str, ...]) -> tuple[str, ...]:
    found = split_tools(" ".join(tools))
    return found if split_tools(" ".join(found)) == found else ()


def _plain(values: Mapping[str, Any]) -> Mapping[str, Any]:
    kept = {key: value for key, value in values.items() if is_plain({key: value}, _DEPTH)}
    return freeze(kept)  # type: ignore[no-any-return]
