"""What every written form of a skill can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from butlers.config.locate import Place
from butlers.domain.diagnostic import Diagnostic
from butlers.skills.formats.text import whole
from butlers.skills.skill import Skill


@dataclass(frozen=True, slots=True)
class Source:
    """A file of a stranger: where it was, and its bytes."""

    file: Path
    content: bytes

    @property
    def folder_name(self) -> str:
        return whole(self.file.parent.name)  # its bytes may be no text


def _nowhere(_field: str, _path: str | None = None) -> Place | None:
    return None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was understood, and what had to be repaired for it. No skill: nothing was usable.

    ``traits`` are constructs that this reader takes and other clients refuse. ``where`` tells the
    place of a pack's field, or of one path in it, to whoever finds a fault that the file alone
    does not show.
    """

    skill: Skill | None
    diagnostics: tuple[Diagnostic, ...] = ()
    traits: frozenset[str] = frozenset()
    where: Callable[..., Place | None] = field(default=_nowhere, compare=False, repr=False)

    def without_places(self) -> Reading:
        """For whoever keeps thousands: the places hold on to the whole file."""
        return replace(self, where=_nowhere)

    def codes(self) -> frozenset[str]:
        return frozenset(found.code for found in self.diagnostics)


class SkillFormat(Protocol):
    """One written form. ``file_names``: the files that hold it, the proper spelling first."""

    file_names: tuple[str, ...]

    def read(self, source: Source) -> Reading:
        """Never raises, whatever the bytes are."""
        ...

    def render(self, skill: Skill) -> Mapping[str, bytes]:
        """The files that say the same, by path; an InvalidSkill names all that can't be written."""
        ...
