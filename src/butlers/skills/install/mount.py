"""Install skills into the folder where a session's CLI looks for them: all of them, or none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from butlers.domain.errors import SkillError, SkillInstallationError, SkillPathRefused
from butlers.skills.names import inner_path
from butlers.skills.registry import packs
from butlers.skills.tree import resolve_inside

# Folders below HOME where the CLIs look for skills.
CLAUDE_FOLDER = Path(".claude/skills")
AGENTS_FOLDER = Path(".agents/skills")


@dataclass(frozen=True, slots=True)
class SkillCopy:
    """A skill to copy from a folder. ``digest`` is its registered hash, or None."""

    kind: ClassVar[Literal["inline", "ref"]] = "ref"
    source: Path
    name: str
    digest: str | None = None

    def stage(self, target: Path, shared: Path | None) -> None:
        roots = (self.source.parent, *((shared,) if shared else ()))
        source = resolve_inside(self.source, *roots)
        if source is None or not source.is_dir():
            raise SkillPathRefused(f"{self.source} is not a skill's folder")
        target.mkdir()
        packs.copy_verified(source, target, self.digest, shared=shared, keep_modes=True)


@dataclass(frozen=True, slots=True)
class InlineSkill:
    """A skill given as text: its files by name."""

    kind: ClassVar[Literal["inline", "ref"]] = "inline"
    name: str
    files: Mapping[str, bytes] = field(repr=False)

    def stage(self, target: Path, shared: Path | None) -> None:
        target.mkdir()
        for name, content in self.files.items():
            (target / name).write_bytes(content)


Installable = SkillCopy | InlineSkill


@dataclass(frozen=True, slots=True)
class SkillInstaller:
    """``folder`` is the session's skills folder. Links may point into ``shared``, the roster's folder."""

    folder: Path
    shared: Path | None = None

    def install(self, skills: Sequence[Installable]) -> tuple[Path, ...]:
        """Return the new folders in order. Raise SkillInstallationError with the skill that failed."""
        if not skills:
            return ()
        self._refuse_collisions(skills)
        with self._staging(skills[0]) as staged, ExitStack() as undo:
            for skill in skills:
                with self._wrap_errors(skill):
                    skill.stage(staged / skill.name, self.shared)
            for skill in skills:
                with self._wrap_errors(skill):
                    os.rename(staged / skill.name, self.folder / skill.name)
                undo.callback(packs.remove, self.folder / skill.name)
            undo.pop_all()
        return tuple(self.folder / skill.name for skill in skills)

    def _refuse_collisions(self, skills: Sequence[Installable]) -> None:
        with self._wrap_errors(skills[0]):
            there = list(self.folder.iterdir()) if self.folder.is_dir() else []
        # On a file system that ignores case, two such names are one folder.
        taken = {path.name.casefold(): path for path in there}
        for skill in skills:
            if inner_path(skill.name) != skill.name or "/" in skill.name or skill.name[0] == ".":
                raise self._error(skill, "not a valid name for a skill's folder")
            if other := taken.get(skill.name.casefold()):
                raise self._error(
                    skill, f"the name is taken by {other}", hint="rename one of the two"
                )
            taken[skill.name.casefold()] = self.folder / skill.name

    @contextmanager
    def _staging(self, first: Installable) -> Iterator[Path]:
        with self._wrap_errors(first):
            self.folder.mkdir(parents=True, exist_ok=True)
            staged = Path(tempfile.mkdtemp(dir=self.folder, prefix=".installing-"))
        try:
            yield staged
        finally:
            packs.remove(staged)

    @contextmanager
    def _wrap_errors(self, skill: Installable) -> Iterator[None]:
        try:
            yield
        except SkillError as error:
            raise self._error(skill, error.message, error, hint=error.hint) from error
        except OSError as error:
            raise self._error(skill, error.strerror or str(error), error) from error

    def _error(
        self,
        skill: Installable,
        why: str,
        cause: BaseException | None = None,
        hint: str | None = None,
    ) -> SkillInstallationError:
        return SkillInstallationError(
            f"skill {skill.name!r} could not be installed into {self.folder}: {why}",
            hint=hint,
            skill_name=skill.name,
            skills_dir=self.folder,
            source=skill.kind,
            cause=cause,
        )
