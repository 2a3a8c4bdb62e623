"""The packs that come with Butlers. None is given to a butler that does not name it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from butlers.domain.errors import SkillNotFound
from butlers.skills.catalogue import Registered
from butlers.skills.registry import NewSkill, SkillRegistry

# What they are told by variables that are no secrets: an answer may contain their values.
SETTINGS = frozenset({"HTTP_ALLOWED_HOSTS"})


def built_in_packs() -> Iterator[Path]:
    """The folder of each of them."""
    for folder in sorted((Path(__file__).parent / "built_in").iterdir()):
        if (folder / "manifest.json").is_file():
            yield folder


def register_built_in(registry: SkillRegistry) -> Iterator[Registered]:
    """Register each of them, or the version that this release brings."""
    for folder in built_in_packs():
        try:
            registry.get(folder.name)
        except SkillNotFound:
            yield registry.register(NewSkill(folder))
        else:
            yield registry.update(NewSkill(folder))
