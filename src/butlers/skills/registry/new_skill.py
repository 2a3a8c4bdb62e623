"""A skill on its way into the registry: copied to a private folder, checked, and made a pack."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from butlers.config.files import replace_file
from butlers.domain.diagnostic import Diagnostic
from butlers.domain.errors import InvalidSkill, SkillOwnerMismatch
from butlers.skills import names
from butlers.skills.check.rules import ENV_EXAMPLE, Checked, check
from butlers.skills.findings import quoted
from butlers.skills.formats import manifest, skill_md
from butlers.skills.registry import packs
from butlers.skills.registry.adopt import Adopted, AdoptionTerms, adopt
from butlers.skills.registry.catalog import SkillState
from butlers.skills.skill import SkillSpec
from butlers.skills.tree import digest_folder


@dataclass(frozen=True, slots=True)
class NewSkill:
    """A skill to register. ``by`` is the butler that asks, or None for a person; ``origin`` is the
    address that the skill was installed from, and ``commit`` the commit there. ``name`` replaces the
    skill's own name; ``owner`` and ``version`` apply if the skill names none; ``env_vars`` are declared in
    addition to those that it declares. ``base_version`` is that of the plugin that the skill is from."""

    folder: Path
    by: str | None = None
    owner: str | None = None
    version: str | None = None
    state: SkillState = SkillState.APPROVED
    shared: Path | None = None
    origin: str | None = None
    commit: str | None = None
    name: str | None = None
    env_vars: tuple[str, ...] = ()
    base_version: str | None = None

    @property
    def terms(self) -> AdoptionTerms:
        owner = self.by or self.owner
        return AdoptionTerms(self.name, self.version, owner, self.env_vars, self.base_version)


@dataclass(frozen=True, slots=True)
class StagedSkill:
    """A private copy that is a valid pack. ``diagnostics`` are its warnings, and the changes made to it."""

    new: NewSkill
    folder: Path
    skill: SkillSpec
    version: str
    digest: str
    diagnostics: tuple[Diagnostic, ...] = ()


@contextmanager
def staged(home: Path, new: NewSkill) -> Iterator[StagedSkill]:
    """Copy, check and complete the skill. Raise InvalidSkill with every error.

    The copy is removed at the end unless it was moved.
    """
    source = new.folder.resolve()
    with packs.staging(home, source.name) as folder:
        packs.copy_skill(source, folder, shared=new.shared)
        checked = check(folder)
        adopted = _adopt(new, checked)
        version = require_label(adopted.skill)
        _complete(checked, adopted.skill, folder)
        found = (*checked.diagnostics, *adopted.notes)
        yield StagedSkill(new, folder, adopted.skill, version, digest_folder(folder), found)


def _adopt(new: NewSkill, checked: Checked) -> Adopted:
    skill = require_valid(new, checked)
    if new.by is not None and skill.owner not in (None, new.by):
        raise SkillOwnerMismatch(
            f"{skill.name} names {skill.owner} as its owner, but {new.by} registers it",
            hint=f'write "owner": "{new.by}"',
        )
    return adopt(skill, checked.folder, digest_folder(checked.folder), new.terms)


def require_valid(new: NewSkill, checked: Checked) -> SkillSpec:
    """Return the skill. Raise InvalidSkill with every error that registration does not mend."""
    if checked.skill is None or not all(_is_completed(new, found) for found in checked.errors):
        raise _invalid(new, checked)
    return checked.skill


def _is_completed(new: NewSkill, found: Diagnostic) -> bool:
    """Return True for the missing owner of a skill that a butler makes: the butler is its owner."""
    return new.by is not None and found.code == "manifest-field-missing" and found.entry == "owner"


def _invalid(new: NewSkill, checked: Checked) -> InvalidSkill:
    if new.origin is None and new.by is None:
        shown = new.folder
        hint = f"`butlers skills check {shlex.quote(str(new.folder))}` shows everything"
    else:
        shown = Path(new.folder.name)
        hint = "its author must fix it; `butlers skills check` shows everything"
    return InvalidSkill(f"{shown} is not valid:", diagnostics=checked.errors_in(shown), hint=hint)


def _complete(checked: Checked, skill: SkillSpec, folder: Path) -> None:
    """Write the fields of a pack into the staged copy, unless it has them already."""
    if skill == checked.skill and skill.has_manifest:
        return
    # Another tool's manifest.json is a file of the skill and stays as it is.
    foreign = "manifest-foreign" in checked.reading.codes()
    rendered = dict((skill_md if foreign else manifest).FORMAT.render(skill))
    if skill.env_vars and not (folder / ENV_EXAMPLE).exists():
        rendered[ENV_EXAMPLE] = "".join(f"{name}=\n" for name in skill.env_vars).encode()
    for path, content in rendered.items():
        replace_file(folder / path, content, 0o444)


def require_label(skill: SkillSpec) -> str:
    """Return the version. Raise unless id and version are valid: both become part of a path."""
    if not names.is_id(skill.name):
        raise InvalidSkill(
            f"{quoted(skill.name)} is not a valid skill id",
            hint="use lower-case words joined by single hyphens",
        )
    if skill.version is None or not names.is_version(skill.version):
        raise InvalidSkill(
            f"{quoted(skill.version or '')} is not a valid skill version",
            hint="use MAJOR.MINOR.PATCH, such as 1.0.0",
        )
    return skill.version
