"""A reference to a skill's folder, which is maintained by somebody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from butlers.domain.errors import SkillRefError
from butlers.prompt.skill import NAME, VerbatimSkill
from butlers.skills import reader
from butlers.skills import skill as skills

NOT_FRONT_MATTER = (
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
    """Checked when it is made, unless it is not enabled: then whenever it is used."""

    path: Path | str
    base_path: Path | None = None
    enabled: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
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
        """The skill as a part of the prompt, for a session whose home can not hold it."""
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

    def _read(self) -> skills.Skill:
        folder = self.resolved_path
        if not folder.exists():
            raise SkillRefError(folder, "not_found")
        if not folder.is_dir():
            raise SkillRefError(folder, "not_directory")
        if not self.skill_md_path.is_file():
            raise SkillRefError(folder, "missing_skill_md")
        reading = reader.read_skill_md(folder)
        if reading is None or reading.skill is None:
            raise SkillRefError(folder, "invalid_frontmatter", "SKILL.md can not be read")
        wrong = [found.message for found in reading.diagnostics if found.code in NOT_FRONT_MATTER]
        if wrong:
            raise SkillRefError(folder, "invalid_frontmatter", "; ".join(wrong))
        if not NAME.fullmatch(reading.skill.name):
            said = f"{reading.skill.name[:80]!r} can not be the name of a skill"
            raise SkillRefError(folder, "invalid_frontmatter", said)
        return reading.skill
