"""``butlers skills search``: bring the index up to date and ask it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from butlers.cli.output import print_message
from butlers.domain.errors import SkillError
from butlers.skills.registry.registry import SkillRegistry
from butlers.skills.search import (
    REGISTERED,
    FoundSkill,
    SkillIndex,
    index_folder,
    index_registered,
)


def search_skills(
    registry: SkillRegistry,
    words: Sequence[str],
    folders: Sequence[Path],
    limit: int,
    *,
    again: bool = False,
) -> list[FoundSkill]:
    """Search the registered skills, these folders, and the collections that were indexed before."""
    index = SkillIndex(registry.home)
    index_registered(index, registry)
    for folder in folders:
        index_folder(index, folder, again=again)
    named = {str(folder.resolve()) for folder in folders}
    for source in index.sources():
        if source != REGISTERED and source not in named:
            _refresh_known(index, Path(source), again=again)
    return index.search(words, limit)


def _refresh_known(index: SkillIndex, folder: Path, *, again: bool) -> None:
    """Bring a collection of an earlier search up to date; one that is gone is left out with a warning."""
    try:
        index_folder(index, folder, again=again)
    except SkillError as error:
        print_message("warning", error.message)
