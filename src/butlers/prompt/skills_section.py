"""Section that holds skills: installed into the session's home, or summarized in the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.domain.errors import PromptValidationError
from butlers.prompt.params import Params
from butlers.prompt.section import Section
from butlers.prompt.skill import Skill, SkillRef
from butlers.skills.install.mount import InlineSkill, Installable, SkillCopy, SkillInstaller

SkillSource = Skill[Any] | SkillRef


@dataclass(slots=True, frozen=True)
class SkillsSectionParams:
    """``enabled_skills``: names of the skills to show; None means all."""

    enabled_skills: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Installed:
    """Paths of installed skills, and the names of inline (written) and referenced (copied) ones."""

    paths: tuple[Path, ...]
    inline: tuple[str, ...]
    referenced: tuple[str, ...]


class SkillsSection(Section[SkillsSectionParams]):
    is_container = True

    def __init__(
        self,
        *,
        title: str = "Skills",
        key: str = "skills",
        skills: Sequence[SkillSource] = (),
        skill_refs: Sequence[SkillRef] = (),
        enabled: Callable[[SkillsSectionParams], bool] | None = None,
        accepts_overrides: bool = True,
    ) -> None:
        self.skills, self.skill_refs = tuple(skills), tuple(skill_refs)
        for one in self.all_skills:
            if not isinstance(one, Skill | SkillRef):
                raise PromptValidationError(
                    f"the section {key} may hold skills only, not {type(one).__name__}"
                )
        super().__init__(title=title, key=key, enabled=enabled, accepts_overrides=accepts_overrides)
        self._reject_duplicates()

    @property
    def params_type(self) -> type | None:
        return SkillsSectionParams

    @property
    def all_skills(self) -> tuple[SkillSource, ...]:
        """All skill sources (inline + refs)."""
        return (*self.skills, *self.skill_refs)

    @property
    def inline_skills(self) -> tuple[Skill[Any], ...]:
        """Code-defined skills."""
        return tuple(one for one in self.skills if isinstance(one, Skill))

    @property
    def referenced_skills(self) -> tuple[SkillRef, ...]:
        """Filesystem-referenced skills."""
        return tuple(one for one in self.all_skills if isinstance(one, SkillRef))

    @property
    def native_skills(self) -> tuple[Skill[Any], ...]:
        """Inline skills without custom tools (installed natively)."""
        return tuple(one for one in self.inline_skills if not one.has_tools)

    @property
    def prompt_skills(self) -> tuple[Skill[Any], ...]:
        """Inline skills with custom tools (kept in prompt)."""
        return tuple(one for one in self.inline_skills if one.has_tools)

    def render_body(self, params: SkillsSectionParams) -> str:
        return ""

    def declared_children(self) -> Sequence[Section[Any]]:
        return [*self.inline_skills, *(ref.as_section() for ref in self._enabled_refs())]

    def shown_children(
        self, params: SkillsSectionParams, *, installed: bool
    ) -> Sequence[Section[Any]]:
        self._reject_duplicates()  # a ref may have been enabled since
        if installed:
            return self._wanted(self.prompt_skills, params)
        shown = (
            one if isinstance(one, Skill) else one.as_section()
            for one in self.all_skills
            if isinstance(one, Skill) or one.is_enabled()
        )
        return self._wanted(shown, params)

    def install_skills(
        self,
        *,
        skills_dir: Path,
        params_lookup: Mapping[type, Any],
        overrides: Mapping[str, str] | None = None,
    ) -> tuple[Path, ...]:
        """Install all native skills and copy all skill refs to skills_dir; all of them or none.

        ``overrides``: replacement texts, by a skill's key or an inner section's path. Raises
        SkillInstallationError.
        """
        return self.install(
            skills_dir=skills_dir, params_lookup=params_lookup, overrides=overrides
        ).paths

    def install(
        self,
        *,
        skills_dir: Path,
        params_lookup: Mapping[type, Any],
        overrides: Mapping[str, str] | None = None,
    ) -> Installed:
        """Install like ``install_skills``; also return which skills were written and copied."""
        self._reject_duplicates()
        params = Params(params_lookup)
        own, claimed_types = params.of(self, frozenset()), self.claimed_types()

        def given(section: Section[Any]) -> Any:
            return params.of(section, claimed_types)

        texts = overrides or {}
        written = [
            InlineSkill(
                skill.name,
                {"SKILL.md": _bytes(skill.to_skill_md(given(skill), texts=texts, params_of=given))},
            )
            for skill in self._wanted(self.native_skills, own)
            if skill.is_enabled(given(skill))
        ]
        refs = self._wanted(self._enabled_refs(), own)
        copied = [SkillCopy(ref.resolved_path.resolve(), ref.name) for ref in refs]
        everything: list[Installable] = [*written, *copied]
        return Installed(
            SkillInstaller(skills_dir).install(everything),
            tuple(one.name for one in written),
            tuple(one.name for one in copied),
        )

    def claimed_types(self) -> frozenset[type]:
        """Return the params types that the section, its skills and their inner sections name."""
        found, waiting = set(), [self, *self.inline_skills]
        while waiting:
            section: Section[Any] = waiting.pop()
            found.add(section.params_type)
            if section is not self:
                waiting += section.declared_children()
        return frozenset(kind for kind in found if kind is not None)

    def _enabled_refs(self) -> list[SkillRef]:
        return [ref for ref in self.referenced_skills if ref.is_enabled()]

    def _wanted(self, skills: Iterable[Any], params: SkillsSectionParams) -> list[Any]:
        names = params.enabled_skills
        return [one for one in skills if names is None or one.name in names]

    def _reject_duplicates(self) -> None:
        names = [one.name for one in self.inline_skills]
        keys = [one.key for one in self.inline_skills]
        referred = [ref.name for ref in self._enabled_refs()]
        for what, found in (("name", names + referred), ("key", keys + referred)):
            duplicates = sorted({one for one in found if found.count(one) > 1})
            if duplicates:
                raise PromptValidationError(
                    f"the section {self.key} has two skills with the {what} {', '.join(duplicates)}",
                    hint="rename or remove one of them",
                )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
