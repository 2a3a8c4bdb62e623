"""The one installer: skills copied or written whole into the folder where a session's CLI looks for them.

Either all of them are there afterwards, or none.
"""

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

# Where the CLIs look below HOME.
CLAUDE_FOLDER = Path(".claude/skills")
AGENTS_FOLDER = Path(".agents/skills")


@dataclass(frozen=True, slots=True)
class SkillCopy:
    """A skill's folder and the name that it gets. ``digest`` is what was registered, if it was."""

    kind: ClassVar[Literal["inline", "ref"]] = "ref"
    source: Path
    name: str
    digest: str | None = None

    def stage(self, target: Path, shared: Path | None) -> None:
        roots = (self.source.parent, *((shared,) if shared else ()))
        source = resolve_inside(self.source, *roots)
        if source is None or not source.is_dir():
            raise SkillPathRefused(f"{self.source} is no folder of a skill here")
        target.mkdir()
        packs.copy_verified(source, target, self.digest, shared=shared, keep_modes=True)


@dataclass(frozen=True, slots=True)
class InlineSkill:
    """A skill that lies nowhere yet: its files by name."""

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
    """``folder`` is the session's folder for skills. Links may lead into ``shared``, the roster's own."""

    folder: Path
    shared: Path | None = None

    def install(self, mounts: Sequence[Installable]) -> tuple[Path, ...]:
        """Where each of them is now, in the same order. SkillInstallationError names the one that failed."""
        if not mounts:
            return ()
        self._refuse_collisions(mounts)
        with self._staging(mounts[0]) as staged, ExitStack() as undo:
            for mount in mounts:
                with self._failing(mount):
                    mount.stage(staged / mount.name, self.shared)
            for mount in mounts:
                with self._failing(mount):
                    os.rename(staged / mount.name, self.folder / mount.name)
                undo.callback(packs.remove, self.folder / mount.name)
            undo.pop_all()
        return tuple(self.folder / mount.name for mount in mounts)

    def _refuse_collisions(self, mounts: Sequence[Installable]) -> None:
        with self._failing(mounts[0]):
            there = list(self.folder.iterdir()) if self.folder.is_dir() else []
        # Two names that one file system takes for one would be one folder.
        taken = {path.name.casefold(): path for path in there}
        for mount in mounts:
            if inner_path(mount.name) != mount.name or "/" in mount.name or mount.name[0] == ".":
                raise self._error(mount, "this can not be the name of a skill's folder")
            if other := taken.get(mount.name.casefold()):
                raise self._error(
                    mount, f"there is one of this name: {other}", hint="rename one of the two"
                )
            taken[mount.name.casefold()] = self.folder / mount.name

    @contextmanager
    def _staging(self, first: Installable) -> Iterator[Path]:
        with self._failing(first):
            self.folder.mkdir(parents=True, exist_ok=True)
            staged = Path(tempfile.mkdtemp(dir=self.folder, prefix=".installing-"))
        try:
            yield staged
        finally:
            packs.remove(staged)

    @contextmanager
    def _failing(self, mount: Installable) -> Iterator[None]:
        try:
            yield
        except SkillError as error:
            raise self._error(mount, error.message, error, hint=error.hint) from error
        except OSError as error:
            raise self._error(mount, error.strerror or str(error), error) from error

    def _error(
        self,
        mount: Installable,
        why: str,
        cause: BaseException | None = None,
        hint: str | None = None,
    ) -> SkillInstallationError:
        return SkillInstallationError(
            f"the skill {mount.name!r} could not be installed into {self.folder}: {why}",
            hint=hint,
            skill_name=mount.name,
            skills_dir=self.folder,
            source=mount.kind,
            cause=cause,
        )
