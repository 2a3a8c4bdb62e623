"""Private home folder of one evaluation, with installed skills; deleted afterwards."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from butlers.config.files import replace_file
from butlers.domain.errors import SkillInstallationError
from butlers.domain.session import Access
from butlers.process.leftovers import temporary_folder
from butlers.prompt import Prompt, Session, SkillsInstalled
from butlers.runtimes.base import Grants, Workspace
from butlers.skills.formats.skill_md import with_name_and_description_only
from butlers.skills.reader import read_skill_md
from butlers.skills.registry import packs

HOOKS = "hooks"
SETTINGS = frozenset({".claude-plugin", ".claude", ".mcp.json", ".lsp.json"})
PREFIX = "bp-"
INTERPRETERS = {".sh": "bash", ".py": "python3"}


@dataclass(slots=True)
class Home:
    """Home folder. ``skills``: all installed names; ``folders``: those copied from a reference."""

    workspace: Workspace
    skills_dir: Path
    own_cwd: Path | None
    skills: list[str] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)

    def install(self, prompt: Prompt[Any], session: Session) -> None:
        """Install the prompt's native skills; raise SkillInstallationError on failure."""
        inline: list[str] = []
        referenced: list[str] = []
        for path, section in prompt.skills_sections():
            installed = section.install(
                skills_dir=self.skills_dir,
                params_lookup=prompt.params_lookup(section),
                overrides=prompt.overrides_below(path),
            )
            inline += installed.inline
            referenced += installed.referenced
        self.skills = [*inline, *referenced]
        self.folders = [self.skills_dir / name for name in referenced]
        for folder in self.folders:
            self._disarm(folder)
        if self.skills:
            session.publish(
                SkillsInstalled,
                prompt.template,
                inline_skills=tuple(inline),
                referenced_skills=tuple(referenced),
                skills_dir=str(self.skills_dir),
            )

    def _disarm(self, folder: Path) -> None:
        """Remove everything that a CLI would execute; raise SkillInstallationError for hooks and settings.

        Claude Code 2.1.325 runs a skill's hooks regardless of the session's permissions. YAML can spell
        `hooks` in many ways, so the CLI gets a SKILL.md with only name and description.
        """
        reading = read_skill_md(folder)
        if reading is None or reading.skill is None or HOOKS in reading.skill.extra:
            raise self._refusal(folder, "contains hooks", "remove the hooks from its SKILL.md")
        for path in sorted(folder.rglob(".*")):
            if path.name.casefold() in SETTINGS:
                found = f"contains {path.relative_to(folder)}, settings of a CLI"
                raise self._refusal(folder, found, "remove it")
        for path in folder.glob(".*/"):  # a CLI may read settings from it
            packs.remove(path)
        file = folder / "SKILL.md"
        try:
            mode = stat.S_IMODE(file.stat().st_mode)
            replace_file(file, with_name_and_description_only(file, file.read_bytes()), mode)
        except OSError as error:
            raise self._error(folder, f"could not be written: {error}") from error

    def _refusal(self, folder: Path, why: str, fix: str) -> SkillInstallationError:
        hint = f"{fix}, or keep the skill in the prompt: install_skills=False"
        return self._error(folder, f"{why}, which the CLI would run without permission", hint)

    def _error(self, folder: Path, why: str, hint: str | None = None) -> SkillInstallationError:
        return SkillInstallationError(
            f"the skill {folder.name!r} {why}",
            hint=hint,
            skill_name=folder.name,
            skills_dir=self.skills_dir,
            source="ref",
        )

    def grants(self) -> Grants:
        """Return access to read ``cwd`` and the skills' files, and to run the skills' scripts."""
        if not self.folders and self.own_cwd is None:
            return Grants()
        readable = (*((self.own_cwd,) if self.own_cwd else ()), *self.folders)
        return Grants(Access.WORKSPACE, readable, (), tuple(self._scripts()))

    def _scripts(self) -> Iterator[str]:
        for folder in self.folders:
            for file in sorted(folder.rglob("*")):
                if file.is_file() and os.access(file, os.X_OK):
                    yield str(file)
                    if program := INTERPRETERS.get(file.suffix):
                        yield f"{program} {file}"


@contextmanager
def open_home(skills_folder: Path, cwd: Path | None) -> Iterator[Home]:
    with temporary_folder(PREFIX) as private:
        inside = private / "work"
        inside.mkdir(mode=0o700)
        own = cwd.resolve() if cwd else None
        workspace = Workspace(own or inside, private)
        yield Home(workspace, workspace.home / skills_folder, own)
