"""Skills in prompts: defined in code (Skill) or in a folder (SkillRef)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from butlers.domain.errors import PromptValidationError, SkillRefError
from butlers.prompt.params import fill, tidy
from butlers.prompt.section import (
    MAX_HEADING_LEVEL,
    Section,
    SectionVisibility,
    VisibilitySelector,
    is_text,
    require_texts,
)
from butlers.prompt.tool import Tool
from butlers.skills import reader
from butlers.skills.formats.skill_md import dump_fields
from butlers.skills.names import MAX_DESCRIPTION
from butlers.skills.skill import SkillSpec

ParamsT = TypeVar("ParamsT")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
# A name begins with a letter of any script, `_` or `:`.
XML_TAG = re.compile(r"<[/!?]?(?:[^\W\d]|:)[^<>]*>|<!--")


@dataclass(slots=True, frozen=True)
class SkillParams:
    """Empty params for skills without params."""


class Skill(Section[ParamsT]):
    noun = "skill"
    whole = "full workflow"

    def __init__(
        self,
        *,
        name: str,
        description: str,
        title: str,
        template: str,
        key: str,
        default_params: ParamsT | None = None,
        children: Sequence[Section[Any]] | None = None,
        enabled: Callable[[ParamsT], bool] | None = None,
        tools: Sequence[Tool[Any, Any]] | None = None,
        accepts_overrides: bool = True,
        summary: str | None = None,
        visibility: VisibilitySelector = SectionVisibility.SUMMARY,
    ) -> None:
        require_texts(self.noun, name=name, description=description, template=template)
        self._check(name, description)
        if not template.strip():
            raise PromptValidationError(f"the skill {name} has an empty template")
        self.name, self.description = name, description
        self.template = tidy(template)
        self._derives_summary = summary is None
        super().__init__(
            title=title,
            key=key,
            default_params=default_params,
            children=children,
            enabled=enabled,
            tools=tools,
            accepts_overrides=accepts_overrides,
            summary=f"[Skill: {name}] {description}" if summary is None else summary,
            visibility=visibility,
        )

    def _check(self, name: str, description: str) -> None:
        if not NAME.fullmatch(name):
            raise PromptValidationError(
                f"{name[:80]!r} is not a valid skill name",
                hint="use 1 to 64 lower-case letters, digits and hyphens; start with a letter or digit",
            )
        if not 0 < len(description) <= MAX_DESCRIPTION or not description.strip():
            raise PromptValidationError(
                f"the description of the skill {name} must have 1 to {MAX_DESCRIPTION} characters"
            )
        if tag := XML_TAG.search(description):
            raise PromptValidationError(
                f"the description of the skill {name} must not contain XML tags: {tag[0][:40]}"
            )

    @property
    def has_tools(self) -> bool:
        """True if the skill or one of its inner sections has tools."""
        return _has_tools(self)

    def render_body(self, params: ParamsT) -> str:
        return fill(self.template, params)

    def render_summary(self, params: ParamsT) -> str:
        if self._derives_summary:
            return self.require_summary()
        return super().render_summary(params)

    def to_skill_md(
        self,
        params: ParamsT,
        *,
        texts: Mapping[str, str] | None = None,
        params_of: Callable[[Section[Any]], Any] | None = None,
    ) -> str:
        """Render a SKILL.md: front matter, body, and inner sections as headings.

        ``texts``: overrides by path, starting at this skill. ``params_of`` returns the params of an
        inner section; default: its own defaults, or the skill's params.
        """
        given = params_of or (lambda one: one.default_params or params)
        front = dump_fields({"name": self.name, "description": self.description})
        body = _section_text(self, params, self.key, texts or {})
        inner = "".join(_inner_sections(self, self.key, given, texts or {}, 2))
        return f"---\n{front}---\n\n{body}\n{inner}"


class VerbatimSkill(Skill[SkillParams]):
    """A skill whose text comes from a file: no placeholders, lenient checks."""

    def __init__(self, *, name: str, title: str, **more: Any) -> None:
        require_texts(self.noun, title=title)
        super().__init__(name=name, title=_one_line(title) or name, **more)

    def _check(self, name: str, description: str) -> None:
        if not NAME.fullmatch(name) or not description.strip():
            raise PromptValidationError(f"{name[:80]!r}: invalid skill name, or empty description")

    @property
    def params_type(self) -> type | None:
        return SkillParams

    def render_body(self, params: SkillParams) -> str:
        return self.template

    def render_summary(self, params: SkillParams) -> str:
        return self.require_summary()


def _one_line(title: str) -> str:
    """Replace control characters and runs of whitespace by one space."""
    return " ".join("".join(sign if is_text(sign) else " " for sign in title).split())


def _has_tools(section: Section[Any]) -> bool:
    return bool(section.tools) or any(map(_has_tools, section.declared_children()))


def _section_text(section: Section[Any], params: Any, path: str, texts: Mapping[str, str]) -> str:
    if path in texts:
        return section.render_override(texts[path], params)
    return section.render_body(params)


def _inner_sections(
    section: Section[Any],
    path: str,
    params_of: Callable[[Section[Any]], Any],
    texts: Mapping[str, str],
    level: int,
) -> list[str]:
    """Render inner sections as headings of a SKILL.md."""
    lines = []
    for child in section.declared_children():
        params, inner = params_of(child), f"{path}.{child.key}"
        if child.is_enabled(params):
            heading = f"{'#' * min(level, MAX_HEADING_LEVEL)} {child.title}"
            lines.append(f"\n{heading}\n\n{_section_text(child, params, inner, texts)}\n")
            lines += _inner_sections(child, inner, params_of, texts, level + 1)
    return lines


FRONT_MATTER_ERRORS = (
    "frontmatter-missing",
    "frontmatter-unclosed",
    "frontmatter-not-yaml",
    "frontmatter-too-large",
    "name-missing",
    "description-missing",
    "description-derived",
)


@dataclass(slots=True, frozen=True)
class SkillRef:
    """Reference to a skill folder. Validated at construction if enabled, and at each use."""

    path: Path | str
    base_path: Path | None = None
    enabled: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        for path in (self.path, self.base_path or ""):
            if not isinstance(path, str | Path):
                raise PromptValidationError(
                    f"the path of a skill must be a path, not {type(path).__name__}"
                )
        if self.is_enabled():
            self.validate()

    @property
    def resolved_path(self) -> Path:
        path = Path(self.path)
        if path.is_absolute():
            return path
        return ((self.base_path or Path.cwd()) / path).resolve()

    @property
    def skill_md_path(self) -> Path:
        return self.resolved_path / "SKILL.md"

    @property
    def name(self) -> str:
        return self._read().name

    @property
    def description(self) -> str:
        return self._read().description

    def is_enabled(self) -> bool:
        return self.enabled() if self.enabled else True

    def validate(self) -> None:
        self._read()

    def as_section(self) -> VerbatimSkill:
        """Return the skill as a prompt section, for CLIs that do not load skills from a folder."""
        found = self._read()
        title = found.title or found.name
        return VerbatimSkill(
            name=found.name,
            description=found.description,
            title=f"{title} (v{found.version})" if found.version else title,
            template=found.body if found.instructions else found.description,
            key=found.name,
            accepts_overrides=False,
        )

    def _read(self) -> SkillSpec:
        folder = self.resolved_path
        if not folder.exists():
            raise SkillRefError(folder, "not_found")
        if not folder.is_dir():
            raise SkillRefError(folder, "not_directory")
        if not self.skill_md_path.is_file():
            raise SkillRefError(folder, "missing_skill_md")
        reading = reader.read_skill_md(folder)
        if reading is None or reading.skill is None:
            raise SkillRefError(folder, "invalid_frontmatter", "SKILL.md cannot be read")
        wrong = [
            found.message for found in reading.diagnostics if found.code in FRONT_MATTER_ERRORS
        ]
        if wrong:
            raise SkillRefError(folder, "invalid_frontmatter", "; ".join(wrong))
        if not NAME.fullmatch(reading.skill.name):
            message = f"{reading.skill.name[:80]!r} is not a valid skill name"
            raise SkillRefError(folder, "invalid_frontmatter", message)
        return reading.skill
