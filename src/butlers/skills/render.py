"""A Skill written down, as a standard SKILL.md or as a pack that holds both forms."""

from __future__ import annotations

from collections.abc import Mapping

from butlers.skills.formats import manifest, skill_md
from butlers.skills.skill import Skill


def as_skill_md(skill: Skill) -> Mapping[str, bytes]:
    """A SKILL.md that every client loads; what the standard has no field for is in its metadata."""
    return skill_md.FORMAT.render(skill)


def as_pack(skill: Skill) -> Mapping[str, bytes]:
    """manifest.json, and SKILL.md beside it, so that clients that know no packs find it too."""
    return {**manifest.FORMAT.render(skill), **skill_md.FORMAT.render(skill)}
